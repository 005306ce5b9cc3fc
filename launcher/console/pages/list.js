"use strict";
(() => {
  const page = document.body.dataset;
  const body = document.getElementById("rows");
  const blank = document.getElementById("row");

  // Earlier versions had a profile's page in the fragment.
  if (location.hash.length > 1) {
    try {
      location.replace("/console/" + encodeURIComponent(decodeURIComponent(location.hash.slice(1))) + tokenOnly());
    } catch { /* not one of ours */ }
  }

  function tokenOnly() {
    const token = new URLSearchParams(location.search).get("token");
    return token ? "?token=" + encodeURIComponent(token) : "";
  }

  // Times are made in UTC; a person reads how long ago they were. The tooltip has them in full,
  // in the person's zone.
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  function ago(seconds) {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    return Math.floor(s / 86400) + " days";
  }
  function age(t) {
    const at = new Date(t.dateTime);
    if (Number.isNaN(at.getTime())) return;
    t.title = full.format(at);
    if (t.dataset.time === "Until") {
      t.textContent = at > Date.now() ? ago((at - Date.now()) / 1000) + " left" : "its time is over";
      return;
    }
    if (t.dataset.time === "Next") {
      t.textContent = at > Date.now() ? "in " + ago((at - Date.now()) / 1000) : "due now";
      return;
    }
    if (t.dataset.time === "Made") {
      t.textContent = ago((Date.now() - at) / 1000) + " ago";
      return;
    }
    t.textContent = t.dataset.form ? full.format(at) : ago((Date.now() - at) / 1000);
  }
  const ages = () => document.querySelectorAll("time[datetime]").forEach(age);
  ages();
  setInterval(ages, 5000);

  // fill puts the values of a row into its slots. Texts stay texts: what is shown comes from
  // hostile pages.
  function fill(row, values) {
    row.dataset.id = values.ID;
    for (const slot of row.querySelectorAll("[data-slot]")) {
      const text = values[slot.dataset.slot] || "";
      if (slot.tagName === "METER") slot.value = Number(text);
      else if (slot.tagName === "IMG") {
        // One that could not be had stays hidden until there is another.
        if ((slot.getAttribute("src") || "") === text) continue;
        if (text) slot.setAttribute("src", text);
        else slot.removeAttribute("src");
      } else if (slot.textContent !== text && !slot.dataset.time) slot.textContent = text;
      slot.hidden = !text;
      if (slot.dataset.link) slot.setAttribute(slot.tagName === "BUTTON" ? "formaction" : "href", values[slot.dataset.link] || "");
      if (slot.dataset.class) slot.className = "state " + values[slot.dataset.class];
      if (slot.dataset.time && text) {
        slot.dateTime = values[slot.dataset.time];
        age(slot);
      }
    }
  }

  function say(text) {
    document.getElementById("said").textContent = text;
  }

  // A sound, for those who asked for one. Browsers make none before the page was used once.
  const sound = document.getElementById("sound");
  let audio = null;
  function ring() {
    if (!sound?.checked) return;
    audio ||= new AudioContext();
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.frequency.value = 660;
    volume.gain.setValueAtTime(0.15, audio.currentTime);
    volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.5);
    tone.connect(volume).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.5);
  }
  if (sound) {
    try {
      sound.checked = localStorage.getItem("leasehold.sound") === "on";
    } catch { /* storage may be off */ }
    sound.addEventListener("change", () => {
      try {
        localStorage.setItem("leasehold.sound", sound.checked ? "on" : "off");
      } catch { /* storage may be off */ }
      ring();
    });
  }

  function texts(changed) {
    for (const [name, text] of Object.entries(changed)) {
      for (const place of document.querySelectorAll('[data-text="' + CSS.escape(name) + '"]')) {
        place.textContent = text;
        if (name === "stale" || name === "none") place.hidden = !text;
        place.closest(".chip:not(.all)")?.classList.toggle("none", text === "0");
      }
    }
    if ("ready" in changed) document.querySelector(".ready").className = "ready " + (changed.ready === "ready" ? "yes" : "no");
    if ("waiting" in changed) {
      document.title = document.title.replace(/^\(\d+\) /, "").replace(/^/, changed.waiting ? "(" + changed.waiting + ") " : "");
      if (Number(changed.waiting || 0) > Number(page.waiting || 0)) {
        say(changed.waiting + (changed.waiting === "1" ? " profile waits" : " profiles wait") + " for a person");
        ring();
      }
      page.waiting = changed.waiting;
    }
  }

  // Rows stay where they are as long as their order does; the one that has the focus keeps it.
  function apply(change) {
    const rows = new Map([...body.children].map((r) => [r.dataset.id, r]));
    for (const [id, values] of Object.entries(change.rows || {})) {
      if (!rows.has(id)) rows.set(id, document.importNode(blank.content.firstElementChild, true));
      fill(rows.get(id), values);
    }
    if (change.order) {
      const focused = body.contains(document.activeElement) ? document.activeElement : null;
      change.order.forEach((id, i) => {
        const row = rows.get(id);
        if (row && body.children[i] !== row) body.insertBefore(row, body.children[i] || null);
      });
      while (body.children.length > change.order.length) body.lastElementChild.remove();
      if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
    }
    texts(change.texts || {});
  }

  // The page hears of changes, and says when it does not.
  let source = null;
  let late = 0;
  let again = 0;
  function listen() {
    clearTimeout(again);
    source = new EventSource(page.updates);
    source.onmessage = (message) => {
      clearTimeout(late);
      late = 0;
      document.getElementById("offline").hidden = true;
      apply(JSON.parse(message.data));
    };
    source.onerror = () => {
      late ||= setTimeout(() => { document.getElementById("offline").hidden = false; }, 3000);
      if (source.readyState === EventSource.CLOSED) again = setTimeout(listen, 10000); // it was refused
    };
  }
  // A page that nobody sees hears something only if it is to make a sound. Otherwise it does not go on to
  // say how many wait.
  function heard() {
    if (document.hidden && sound?.checked && source) return;
    clearTimeout(again);
    clearTimeout(late);
    late = 0;
    source?.close();
    if (!document.hidden || sound?.checked) listen();
    else document.title = document.title.replace(/^\(\d+\) /, "");
  }
  document.addEventListener("visibilitychange", heard);
  heard();

  // Keys. They can be switched off, since some people speak to their computer.
  const single = document.getElementById("single");
  try {
    single.checked = localStorage.getItem("leasehold.keys") !== "off";
    single.addEventListener("change", () => localStorage.setItem("leasehold.keys", single.checked ? "on" : "off"));
  } catch { /* storage may be off */ }
  function step(by) {
    const links = [...body.querySelectorAll("tr > th a")];
    const at = links.findIndex((l) => l.closest("tr").contains(document.activeElement));
    (links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by])?.focus();
  }
  const keys = {
    "/": () => {
      const q = document.getElementById("q");
      q?.focus();
      q?.select();
    },
    j: () => step(1),
    k: () => step(-1),
    n: () => document.querySelector("a[rel=next]")?.click(),
    p: () => document.querySelector("a[rel=prev]")?.click(),
    a: () => location.assign("/accounts" + tokenOnly()),
    h: () => location.assign("/hosts" + tokenOnly()),
    q: () => location.assign("/queue" + tokenOnly()),
    l: () => location.assign("/" + tokenOnly()),
    "?": () => {
      const help = document.getElementById("keys");
      help.open = !help.open;
      if (help.open) help.querySelector("summary").focus();
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (single.checked && Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  // Links to what was asked for stay short: fields that ask for nothing are not sent.
  const find = document.querySelector(".find");
  find?.addEventListener("submit", () => {
    for (const field of find.elements) field.disabled = field.name && field.value === "";
  });
  addEventListener("pageshow", () => {
    for (const field of find?.elements || []) field.disabled = false;
  });

  // A picture that cannot be had leaves no gap.
  const lost = (image) => { image.hidden = true; };
  body.addEventListener("error", (event) => lost(event.target), true);
  for (const image of body.querySelectorAll("img[src]")) if (image.complete && !image.naturalWidth) lost(image); // before this listened

  // A click anywhere on a row opens it.
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !event.target.closest("a, button") && !String(getSelection())) row.querySelector("th a").click();
  });
})();
