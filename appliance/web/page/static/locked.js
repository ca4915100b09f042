// The cookie is kept from requests that another site's link begins (SameSite=Strict). Where the address with the
// token was opened from such a link, the cookie is there by now, and a request of our own carries it: try once.

const TRIED = "wren-tried";

if (location.search === "" && sessionStorage.getItem(TRIED) === null) {
  sessionStorage.setItem(TRIED, "1");
  location.replace("/");
} else if (location.search !== "") {
  document.querySelector("main p").textContent = "That token is not the right one. Paste the part behind token= again.";
  history.replaceState(null, "", "/");
}
