// How much sound to keep ready: raised at once by what was late, lowered slowly where nothing is. The controller of
// appliance/audio/adaptive.py, number for number (tests/web/test_worklets.py holds one to the other); seconds.

const PLAYBACK = {
  first: 0.06,
  least: 0.03,
  most: 0.12,
  deviations: 1.4,
  meanWeight: 1 / 64,
  riseWeight: 1 / 8,
  fallWeight: 1 / 128,
  underrun: 0.02,
  calm: 1.5,
  lowerPerS: 0.04,
};
const LONGEST_STEP = 0.1; // time between two observations counts as calm up to this long

export class Depth {
  #settings;
  #mean = 0;
  #deviation = 0;
  #count = 0;
  #seen = null;
  #calmFrom = 0;

  constructor(settings = PLAYBACK) {
    this.#settings = settings;
    this.target = Math.min(Math.max(settings.first, settings.least), settings.most);
  }

  /** A piece came so much later than it would have had to with nothing kept ready; 0 if in time. */
  observe(now, late) {
    this.#add(Math.max(0, late));
    if (this.#seen === null) this.#seen = this.#calmFrom = now;
    const elapsed = Math.min(Math.max(0, now - this.#seen), LONGEST_STEP);
    this.#seen = now;
    const { least, most, deviations, calm, lowerPerS } = this.#settings;
    const wanted = Math.min(Math.max(this.#mean + deviations * this.#deviation, least), most);
    if (wanted >= this.target) this.#raise(now, wanted);
    else if (now - this.#calmFrom >= calm) this.target = Math.max(wanted, this.target - lowerPerS * elapsed);
  }

  /** There was nothing to play, for so long where that is known. */
  underrun(now, short = 0) {
    this.#raise(now, this.target + Math.max(0, short) + this.#settings.underrun);
    this.#seen = now;
  }

  #add(value) {
    const { meanWeight, riseWeight, fallWeight } = this.#settings;
    this.#count += 1;
    if (this.#count === 1) {
      this.#mean = value;
      return;
    }
    const error = value - this.#mean;
    this.#mean += Math.max(meanWeight, 1 / this.#count) * error;
    const larger = Math.abs(error) - this.#deviation;
    this.#deviation += Math.max(larger > 0 ? riseWeight : fallWeight, 1 / this.#count) * larger;
  }

  #raise(now, target) {
    this.target = Math.min(Math.max(target, this.target), this.#settings.most);
    this.#calmFrom = now;
  }
}
