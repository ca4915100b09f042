"""Over-the-air updates: signed A/B system images and signed model packs. Comes with step 10; nothing is here yet."""
