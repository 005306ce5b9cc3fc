"use strict";
(() => {
  // The secret is sent when the person says so, and by nothing that only loads the page.
  const secret = location.hash.slice(1);
  if (!secret) return;
  document.getElementById("secret").value = secret;
  document.getElementById("begin").hidden = false;
  document.getElementById("spent").hidden = true;
  document.getElementById("begin").onsubmit = () => {
    history.replaceState(null, "", location.pathname);
    document.getElementById("go").disabled = true;
    document.getElementById("go").textContent = "The browser is opened";
  };
})();
