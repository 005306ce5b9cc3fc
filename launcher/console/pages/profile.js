"use strict";
(() => {
  const refreshEvery = 5000; // milliseconds
  const page = document.body.dataset;
  const token = new URLSearchParams(location.search).get("token");

  // Times are made in UTC; a person reads them in their own zone. The tooltip keeps UTC.
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const full = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  for (const t of document.querySelectorAll("time[data-form]")) {
    t.textContent = (t.dataset.form === "clock" ? clock : full).format(new Date(t.dateTime));
  }

  // A picture that cannot be shown says why, in its place.
  async function explain(image) {
    let why = "it cannot be shown";
    try {
      const answer = await fetch(image.src, { cache: "no-store", signal: AbortSignal.timeout(15000) });
      if (!answer.ok) why = (await answer.json()).detail || why;
    } catch { /* the launcher is away, or what came is no picture */ }
    const text = document.createElement("span");
    text.className = "placeholder";
    text.textContent = "No picture: " + why;
    image.replaceWith(text);
  }
  for (const image of document.querySelectorAll("main img")) {
    if (image.complete && image.naturalWidth === 0 && image.loading !== "lazy") explain(image);
    else image.addEventListener("error", () => explain(image), { once: true });
  }

  // How long a worker that asks for a person goes on waiting.
  const left = document.getElementById("left");
  function count() {
    const s = Math.max(0, Math.round((new Date(left.dataset.until) - Date.now()) / 1000));
    left.textContent = s ? " (" + (s < 120 ? s + " s" : Math.floor(s / 60) + " min") + " left)" : " (its time is over)";
  }
  if (left) {
    count();
    setInterval(count, 1000);
  }

  // The reviewer's name is kept in this browser.
  for (const reviewer of document.querySelectorAll("#reviewer, [data-name]")) {
    try {
      reviewer.value ||= localStorage.getItem("leasehold.reviewer") || "";
      reviewer.form.addEventListener("submit", () => localStorage.setItem("leasehold.reviewer", reviewer.value));
    } catch { /* storage may be off */ }
  }

  // One key leads to the next profile that waits for a person, one to the previous, and two choose
  // what is to happen; it is recorded by the button. The list switches keys off.
  let keys = true;
  try {
    keys = localStorage.getItem("leasehold.keys") !== "off";
  } catch { /* storage may be off */ }
  document.addEventListener("keydown", (event) => {
    if (!keys || event.ctrlKey || event.altKey || event.metaKey || event.isComposing || event.target.closest("input:not([type=radio]), textarea, select")) return;
    const chosen = document.getElementById({ n: "next", p: "previous", a: "approve", k: "keep" }[event.key]);
    if (!chosen) return;
    event.preventDefault();
    chosen.click();
    if (chosen.type !== "radio") return;
    const { reviewer, note } = chosen.form.elements;
    (reviewer.value ? note : reviewer).focus();
  });

  // The link is in the answer, and nowhere else.
  const making = document.getElementById("make-link");
  if (making) making.onclick = async () => {
    const made = document.getElementById("sign-in-link");
    making.disabled = true;
    try {
      const answer = await fetch("/v1/profiles/" + encodeURIComponent(making.dataset.profile) + "/sign-in-link", {
        method: "POST", cache: "no-store", headers: token ? { Authorization: "Bearer " + token } : {}, signal: AbortSignal.timeout(15000),
      });
      const link = await answer.json();
      made.value = answer.ok ? link.url : "Not made: " + (link.detail || answer.statusText);
    } catch {
      made.value = "No link came: the launcher did not answer. A link made now replaces one that it made.";
    }
    making.disabled = false;
    document.getElementById("link-made").hidden = false;
    made.select();
  };

  // What a person reads stays as it is; where the profile has changed since, the page says so.
  const changed = document.getElementById("changed");
  const stale = document.getElementById("stale");
  async function look() {
    if (!document.hidden && page.profile) {
      try {
        const answer = await fetch("/v1/profiles/" + encodeURIComponent(page.profile), {
          cache: "no-store", headers: token ? { Authorization: "Bearer " + token } : {}, signal: AbortSignal.timeout(15000),
        });
        if (answer.ok) {
          const now = await answer.json();
          stale.hidden = !now.stale_since;
          if (now.stale_since) {
            stale.textContent = "The lease store (NATS) cannot be reached since " + clock.format(new Date(now.stale_since)) + ". This is the profile as this launcher saw it last; nothing can be decided until the store answers.";
          }
          if (String(now.sequence) !== page.sequence || String(now.lease_token) !== page.token || now.state !== page.state) {
            const again = document.createElement("a");
            again.setAttribute("href", "/console/" + encodeURIComponent(page.profile) + (token ? "?token=" + encodeURIComponent(token) : ""));
            again.textContent = "Load the page again";
            changed.replaceChildren("The profile has changed since: it is " + now.state.replaceAll("_", " ") + " now, with token " + now.lease_token + ". ", again);
            changed.hidden = false;
            return;
          }
        }
      } catch { /* it is asked again */ }
    }
    setTimeout(look, refreshEvery);
  }
  if (changed) setTimeout(look, refreshEvery);
})();
