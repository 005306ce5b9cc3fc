"use strict";
(() => {
  const session = document.body.dataset.session;
  if (!session) return;
  const link = document.body.dataset.link; // the sign-in link by which the person came; undefined: none
  const at = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.search).get("token");
  const longestList = 80; // actions that are shown
  const slowestRetry = 15000; // milliseconds

  // What pages and workers say is text. Characters that cannot be seen, or that turn the
  // direction of writing, are shown as U+FFFD.
  const plain = (text) => String(text ?? "").replace(/[\p{Cc}\p{Cf}]/gu, "\ufffd");

  // What the websocket of a living session sends as a picture: its head, and the image, which is to be
  // closed after it was drawn.
  async function pictureOf(buffer) {
    const length = new DataView(buffer).getUint16(0);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 2, length)));
    return { head, image: await createImageBitmap(new Blob([new Uint8Array(buffer, 2 + length)], { type: "image/jpeg" })) };
  }

  // viewOf opens that websocket: by the person's sign-in link, if they came by one.
  function viewOf(session, token, link) {
    const url = new URL((link ? "/sign-in/" + encodeURIComponent(link) : "/v1/sessions/" + encodeURIComponent(session)) + "/view", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    if (token) url.searchParams.set("token", token);
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    return socket;
  }

  const canvas = at("picture"), paint = canvas.getContext("2d"), over = at("over"), stage = at("stage");
  let socket = null, retry = 1000, gone = false;
  let tabs = [], showing = { target: "", follow: true }, pictured = "";
  let question = ""; // the dialog that is shown
  let head = null; // of the picture that is shown
  let yours = false, person = null, leaseToken = 0, byHand = false;
  let askID = ""; // of the request that is shown

  function say(message) {
    if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
  }
  function state(text, kind) {
    const e = at("state");
    if (e.textContent !== text) e.textContent = text;
    e.className = "state " + kind;
  }
  function notice(text, bad) {
    if (!gone) show(text, bad); // what was said of the end stays
  }
  function show(text, bad) {
    const e = at("notice");
    e.textContent = text;
    e.classList.toggle("bad", Boolean(bad));
    e.hidden = !text;
  }

  // Pictures are drawn one after the other, and each is said to be taken once it is drawn:
  // the launcher sends the next one then.
  let drawing = Promise.resolve();
  function picture(buffer) {
    const from = socket;
    drawing = drawing.then(async () => {
      const { head: came, image } = await pictureOf(buffer);
      try {
        if (came.target === showing.target) {
          if (canvas.width !== image.width || canvas.height !== image.height) {
            canvas.width = image.width;
            canvas.height = image.height;
            fit();
          }
          paint.drawImage(image, 0, 0);
          pictured = came.target;
          head = came;
          canvas.dataset.sequence = came.sequence;
          describe();
        }
        image.close();
      } finally {
        if (from.readyState === WebSocket.OPEN) from.send(JSON.stringify({ type: "ack", sequence: came.sequence }));
      }
    }).catch((problem) => console.error(problem));
  }

  const shown = () => tabs.find((t) => t.target === showing.target);

  // describe says what stands above and over the picture.
  function describe() {
    const tab = shown();
    const title = tab ? plain(tab.title || tab.url) : "";
    at("address").firstChild.textContent = tab ? plain(tab.url) : "";
    if (document.activeElement !== at("url")) at("url").value = tab ? plain(tab.url) : "";
    let text = "";
    if (!tab) text = "No page is open.";
    else if (tab.crashed) text = "The page crashed.";
    else if (tab.hidden && pictured === tab.target) text = "This tab is behind another one, where the browser does not draw it: the picture is the last one.";
    else if (tab.hidden) text = "This tab is behind another one, where the browser does not draw it.";
    else if (pictured !== tab.target) text = "Waiting for the first picture.";
    over.textContent = text;
    over.hidden = !text;
    canvas.style.visibility = tab && pictured === tab.target ? "visible" : "hidden";
    const label = tab ? "Live picture of " + title : "No page";
    if (canvas.getAttribute("aria-label") !== label) canvas.setAttribute("aria-label", label);
    const asked = tab && tab.dialog;
    at("dialog").hidden = !asked;
    if (asked) {
      at("dialog-kind").textContent = "The page asks (" + plain(asked.kind) + ") and waits:";
      at("dialog-text").textContent = plain(asked.message);
    }
    // What was typed for one question, or is pressed once more, is no answer to the next one.
    const now = asked ? tab.target + " " + asked.number : "";
    if (now !== question) {
      question = now;
      at("dialog-input").value = "";
      if (asked && at("dialog-answer").contains(document.activeElement)) at("dialog-text").focus();
    }
    at("dialog-answer").hidden = !(asked && yours);
    at("dialog-input").hidden = !(asked && asked.kind === "prompt");
    at("dialog-no").hidden = Boolean(asked && asked.kind === "alert");
  }

  // Buttons stay the same elements while their tabs are open, so that the focus stays.
  function drawTabs() {
    const strip = at("tabs");
    const have = new Map([...strip.children].map((b) => [b.dataset.target, b]));
    const buttons = tabs.map((tab) => {
      const b = have.get(tab.target) || document.createElement("button");
      b.type = "button";
      b.dataset.target = tab.target;
      b.textContent = plain(tab.title || tab.url || "an empty tab") + (tab.crashed ? " (crashed)" : tab.dialog ? " (asks)" : "");
      b.title = plain(tab.url) + (tab.used ? "\nthe worker used it last" : "");
      b.classList.toggle("used", tab.used);
      b.setAttribute("aria-pressed", String(tab.target === showing.target));
      b.onclick = () => say({ type: yours ? "front" : "show", target: tab.target });
      return b;
    });
    if (buttons.length !== strip.children.length || buttons.some((b, i) => strip.children[i] !== b)) strip.replaceChildren(...buttons);
    at("follow").setAttribute("aria-pressed", String(showing.follow));
    describe();
  }
  at("follow").onclick = () => say({ type: "show", target: showing.follow ? showing.target : "" });

  const words = {
    mouse: "uses the mouse", touch: "touches", scroll: "scrolls", key: "presses keys", text: "types", drag: "drags", focus: "goes to a field", files: "chooses files",
    navigate: "goes to a page", history: "goes back or forward", reload: "loads the page again", stop: "stops the loading", content: "writes the page", dialog: "answers a dialog",
    screenshot: "takes a picture", print: "prints", front: "brings a tab to the front", close: "closes a tab", open: "opens a tab", script: "runs a script", request: "lets a request through, or not",
    cookies: "sets cookies", size: "sets the size of the page", input: "makes an input",
  };
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  function drawActions(message) {
    const list = at("actions");
    for (const a of message.actions) {
      let line = list.querySelector(`[data-number="${Number(a.number)}"]`);
      if (!line) {
        line = document.createElement("li");
        line.dataset.number = a.number;
        list.prepend(line);
      }
      const time = document.createElement("time"), code = document.createElement("code");
      time.dateTime = a.at;
      time.textContent = clock.format(new Date(a.at));
      code.textContent = plain(a.method);
      line.replaceChildren(time, (words[a.does] || plain(a.does)) + (a.times > 1 ? " " + a.times + " times " : " "), code);
    }
    while (list.children.length > longestList) list.lastChild.remove();
  }

  function ended(how) {
    if (!gone) finish(how ? "The session is over: " + plain(how) + "." : "The session is not shown any more.");
  }
  function finish(text) {
    gone = true;
    socket.close();
    hands({ person: null, yours: false });
    if (link) at("signed-in").hidden = true;
    at("asks").hidden = true;
    at("who").textContent = "";
    state("ended", "ended");
    show(text);
  }

  // hands shows who drives the session.
  function hands(m) {
    const before = yours;
    person = m.person;
    yours = m.yours;
    at("who").textContent = link ? (yours ? "What you do in the picture is done in the browser of this account." : "")
      : yours && byHand ? "You have the profile by hand." : yours ? "You have the session: the worker's input is refused until you hand it back."
      : person ? plain(person.name) + " has the session." : "The worker drives it.";
    at("take").textContent = person ? "Take it from " + plain(person.name) : "Take over";
    at("asks").hidden = yours || gone || byHand || link;
    at("giving").hidden = !yours || byHand || link;
    at("end-hold").hidden = !yours || !byHand || link;
    at("worker").hidden = at("follow").hidden = byHand || link; // no worker has it, or it is nothing for the person
    if (!yours) at("choose").hidden = true;
    at("drive").hidden = at("hint").hidden = at("keys").hidden = !yours;
    at("address").hidden = yours;
    canvas.classList.toggle("yours", yours);
    // Not to a button: a key that is held down, or pressed twice, would press that, too.
    if (yours && !before) {
      notice("");
      (byHand && !link ? keys : at("who")).focus();
    } else if (before && !yours && !gone) at("who").focus();
    describe();
  }
  const name = at("name");
  name.value = new URLSearchParams(location.search).get("person") || "";
  try {
    name.value ||= localStorage.getItem("leasehold.reviewer") || "";
  } catch { /* storage may be off */ }
  let me = name.value; // who looks: several may share a token
  async function ask(what, body) {
    try {
      const answer = await fetch("/v1/sessions/" + encodeURIComponent(session) + "/" + what, {
        method: "POST", cache: "no-store", signal: AbortSignal.timeout(30000), body: JSON.stringify({ lease_token: leaseToken, ...body }),
        headers: { "Content-Type": "application/json", ...(token ? { Authorization: "Bearer " + token } : {}) },
      });
      if (!answer.ok) notice("Not done: " + plain((await answer.json()).detail || answer.statusText), true);
    } catch {
      notice("It is not known whether this was done: the launcher did not answer. Load the page again to see.", true);
    }
  }
  at("asks").onsubmit = (e) => {
    e.preventDefault();
    try {
      localStorage.setItem("leasehold.reviewer", name.value);
    } catch { /* storage may be off */ }
    me = name.value;
    say({ type: "person", person: me });
    ask("take-over", { person: name.value, ...(person ? { take_from: person.name } : {}) });
  };
  if (link) at("signed-in").onclick = async () => {
    const button = at("signed-in"), before = button.textContent;
    button.disabled = true;
    button.textContent = "The site is asked";
    try {
      const answer = await fetch("/sign-in/" + encodeURIComponent(link) + "/done", { method: "POST", cache: "no-store", signal: AbortSignal.timeout(120000) });
      const found = await answer.json();
      if (!answer.ok) notice("Not done: " + plain(found.detail || answer.statusText), true);
      else if (!found.over) notice("It is not signed in yet: " + plain(found.how) + ".", true);
      else finish(found.signed_in === "yes" ? "It is signed in. Thank you: you may close this page." : "Thank you: you may close this page.");
    } catch {
      notice("The launcher cannot be reached: try it again.", true);
    }
    button.disabled = false;
    button.textContent = before;
    button.hidden = gone;
  };
  // The request that is shown is answered, and no other.
  const answering = () => ({ ...(askID ? { ask_id: askID } : {}), ...(at("note").value.trim() ? { note: at("note").value.trim() } : {}) });
  at("give").onclick = () => ask("hand-back", answering());
  at("give-not").onclick = () => ask("hand-back", { answered: false, ...answering() });

  const on = {
    person: hands,
    session(m) {
      leaseToken = m.lease_token;
      byHand = m.by_hand;
      // What is pressed once more is no answer to the next request.
      if (m.ask && m.ask.ask_id !== askID && at("giving").contains(document.activeElement)) at("who").focus();
      askID = m.ask ? m.ask.ask_id : "";
      const asked = m.ask && link ? "What is asked for: " + plain(m.ask.reason) : m.ask ? "The worker waits for a person: " + plain(m.ask.reason) + " (until " + clock.format(new Date(m.ask.until)) + ")" : "";
      if (at("asked").textContent !== asked) at("asked").textContent = asked;
      at("asked").hidden = !asked;
      at("give-not").hidden = !asked;
      document.title = (asked ? "(!) " : "") + document.title.replace(/^\(!\) /, "");
      if (!gone) state(m.state === "serving" ? "live" : "ending", m.state === "serving" ? "serving" : "recovering");
      const parts = [];
      if (m.step) parts.push("step " + plain(m.step));
      if (m.checkpoint) parts.push("checkpoint " + plain(m.checkpoint));
      at("step").textContent = parts.map((p) => " \u00b7 " + p).join("");
    },
    tabs(m) { tabs = m.tabs; drawTabs(); },
    showing(m) { showing = m; drawTabs(); },
    actions: drawActions,
    options(m) { choose("Choose", m.options.map((o, index) => ({ value: index, text: o.text, disabled: o.disabled, selected: o.chosen })), false, "select"); },
    files(m) { choose(m.names.length ? "Choose from the session's exchange directory" : "The session's exchange directory has no files", m.names.map((n) => ({ value: n, text: n })), m.multiple, "file"); },
    copied(m) { copied(m.text); },
    ended(m) { ended(m.how); },
    refused(m) { notice(plain(m.why), true); },
  };

  // The picture is as large as there is room for it in the window, and never larger than it came:
  // it would be blurred.
  const room = () => ({ width: stage.clientWidth, height: Math.max(200, window.innerHeight - 24 - stage.getBoundingClientRect().top - window.scrollY) });
  function fit() {
    const { width, height } = room();
    const scale = Math.min(width / canvas.width, height / canvas.height, 1);
    canvas.style.width = Math.floor(canvas.width * scale) + "px";
    canvas.style.height = Math.floor(canvas.height * scale) + "px";
  }

  // What the person does, while they have the session. Places are in pixels of the page.
  const modifiers = (e) => (e.altKey ? 1 : 0) | (e.ctrlKey ? 2 : 0) | (e.metaKey ? 4 : 0) | (e.shiftKey ? 8 : 0);
  function place(e) {
    const box = canvas.getBoundingClientRect();
    return { x: (e.clientX - box.left) / box.width * head.width, y: (e.clientY - box.top) / box.height * head.height };
  }
  const can = () => yours && head !== null && head.target === showing.target;
  const act = (message) => say({ target: showing.target, ...message });
  const keys = at("keys");
  const buttonNames = ["left", "middle", "right", "back", "forward"];
  let pressed = 0, moved = 0;
  function mouse(kind, e) {
    const clicks = kind === "move" ? 0 : Math.max(1, e.detail);
    act({ type: "mouse", kind, ...place(e), button: kind === "move" ? "none" : buttonNames[e.button] || "left", buttons: e.buttons, clicks, modifiers: modifiers(e) });
  }
  canvas.addEventListener("mousedown", (e) => {
    if (!can()) return;
    e.preventDefault();
    keys.focus({ preventScroll: true });
    pressed = e.buttons;
    mouse("down", e);
  });
  window.addEventListener("mouseup", (e) => {
    if (!can() || !pressed) return;
    e.preventDefault();
    pressed = e.buttons;
    mouse("up", e);
  });
  window.addEventListener("mousemove", (e) => {
    const now = performance.now();
    if (!can() || !pressed && e.target !== canvas || now - moved < 30) return;
    moved = now;
    mouse("move", e);
  });
  canvas.addEventListener("contextmenu", (e) => { if (yours) e.preventDefault(); });
  canvas.addEventListener("wheel", (e) => {
    if (!can()) return;
    e.preventDefault();
    const step = e.deltaMode === 1 ? 40 : e.deltaMode === 2 ? 600 : 1;
    act({ type: "wheel", ...place(e), dx: e.deltaX * step, dy: e.deltaY * step, modifiers: modifiers(e) });
  }, { passive: false });
  for (const [event, kind] of [["touchstart", "start"], ["touchmove", "move"], ["touchend", "end"], ["touchcancel", "cancel"]]) {
    canvas.addEventListener(event, (e) => {
      if (!can()) return;
      e.preventDefault();
      if (kind === "start") keys.focus({ preventScroll: true });
      const now = performance.now();
      if (kind === "move" && now - moved < 30) return;
      moved = now;
      act({ type: "touch", kind, points: kind === "cancel" ? [] : [...e.touches].map((t) => ({ ...place(t), id: t.identifier })), modifiers: modifiers(e) });
    }, { passive: false });
  }
  function key(kind, e) {
    const held = e.ctrlKey || e.metaKey;
    const text = kind === "down" && !held ? (e.key.length === 1 ? e.key : e.key === "Enter" ? "\r" : "") : "";
    act({ type: "key", kind, key: e.key, code: e.code, key_code: e.keyCode, location: e.location, repeat: e.repeat, modifiers: modifiers(e), text });
  }
  // An input method makes its text by itself; all other keys go to the page as they are.
  const composes = (e) => e.isComposing || e.keyCode === 229;
  keys.addEventListener("keydown", (e) => {
    if (composes(e) || !yours) return;
    if (e.key === "Escape" && e.shiftKey) {
      e.preventDefault();
      at(link ? "signed-in" : byHand ? "url" : "give").focus();
      return;
    }
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "v") return; // the paste event follows
    if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && ["c", "x"].includes(e.key.toLowerCase())) {
      e.preventDefault();
      act({ type: e.key.toLowerCase() === "c" ? "copy" : "cut" });
      return;
    }
    e.preventDefault();
    if (e.key.length === 1 && e.getModifierState("AltGraph")) act({ type: "text", text: e.key });
    else key("down", e);
  });
  keys.addEventListener("keyup", (e) => {
    if (composes(e) || !yours) return;
    e.preventDefault();
    key("up", e);
  });
  keys.addEventListener("compositionupdate", (e) => act({ type: "compose", text: e.data, start: e.data.length, end: e.data.length }));
  keys.addEventListener("compositionend", (e) => {
    act({ type: "text", text: e.data });
    keys.value = "";
  });
  keys.addEventListener("input", (e) => { // of a keyboard that has no keys, as a phone's
    if (e.isComposing || e.inputType === "insertCompositionText") return;
    const pressing = { deleteContentBackward: ["Backspace", 8, ""], insertLineBreak: ["Enter", 13, "\r"] }[e.inputType];
    if (pressing) {
      for (const kind of ["down", "up"]) act({ type: "key", kind, key: pressing[0], code: pressing[0], key_code: pressing[1], text: kind === "down" ? pressing[2] : "" });
    } else if (e.data) act({ type: "text", text: e.data });
    keys.value = "";
  });
  keys.addEventListener("paste", (e) => {
    e.preventDefault();
    act({ type: "paste", text: e.clipboardData.getData("text/plain") });
  });
  // What was selected on the page goes to the clipboard here, if this browser lets it; else it is
  // shown, to be copied by hand.
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      notice(text.length + " characters are in your clipboard.");
    } catch {
      at("copied").hidden = false;
      at("copied-text").value = text;
      at("copied-text").focus();
      at("copied-text").select();
    }
  }
  at("copied-done").onclick = () => {
    at("copied-text").value = "";
    at("copied").hidden = true;
    keys.focus({ preventScroll: true });
  };
  at("copy").onclick = () => act({ type: "copy" });
  for (const [id, type] of [["back", "back"], ["forward", "forward"], ["reload", "reload"], ["new-tab", "new_tab"], ["close-tab", "close_tab"]]) {
    at(id).onclick = () => act({ type });
  }
  at("drive").onsubmit = (e) => {
    e.preventDefault();
    const typed = at("url").value.trim();
    act({ type: "navigate", url: /^[a-z][a-z0-9+.-]*:/i.test(typed) ? typed : "https://" + typed });
    keys.focus({ preventScroll: true });
  };
  // choose asks in the place of a list that the browser would show in a window of its own.
  let choosing = "";
  function choose(what, options, multiple, type) {
    choosing = type;
    const list = at("choice");
    list.multiple = multiple;
    list.replaceChildren(...options.map((o) => {
      const e = document.createElement("option");
      e.value = o.value;
      e.textContent = plain(o.text);
      e.disabled = Boolean(o.disabled);
      e.selected = Boolean(o.selected);
      return e;
    }));
    at("choose-what").textContent = what;
    at("choose-yes").disabled = !options.length;
    at("choose").hidden = false;
    list.focus();
  }
  function chosen() {
    at("choose").hidden = true;
    keys.focus({ preventScroll: true });
  }
  at("choose-yes").onclick = () => {
    const values = [...at("choice").selectedOptions].map((o) => o.value);
    if (choosing === "select" && values.length) act({ type: "select", index: Number(values[0]) });
    if (choosing === "file") act({ type: "file", names: values });
    chosen();
  };
  at("choose-no").onclick = chosen;
  function answer(accept, e) {
    const tab = shown();
    // The second click of a double click would be on the next question.
    if (e.detail < 2 && tab && tab.dialog) act({ type: "dialog", number: tab.dialog.number, accept, text: accept ? at("dialog-input").value : "" });
  }
  at("dialog-yes").onclick = (e) => answer(true, e);
  at("dialog-no").onclick = (e) => answer(false, e);

  function size() {
    say({ type: "size", ...room(), dpr: window.devicePixelRatio });
  }
  let sizing = 0;
  const resized = new ResizeObserver(() => {
    fit();
    clearTimeout(sizing);
    sizing = setTimeout(size, 300);
  });
  for (const e of document.querySelectorAll(".head, .alert, .bar, .drive, #stage")) resized.observe(e);

  function connect() {
    if (gone) return;
    let opened = false;
    socket = viewOf(session, token, link);
    socket.onopen = () => {
      opened = true;
      retry = 1000;
      notice("");
      if (!link) say({ type: "person", person: me });
      size();
      if (document.hidden) say({ type: "pause" });
    };
    socket.onmessage = (e) => {
      if (typeof e.data !== "string") { picture(e.data); return; }
      const m = JSON.parse(e.data);
      if (on[m.type]) on[m.type](m);
    };
    socket.onclose = (e) => again(opened, e.reason);
  }

  // again tries to connect once more, unless the session is over.
  async function again(opened, reason) {
    if (gone) return;
    state("not connected", "recovering");
    try {
      const answer = await fetch(link ? "/sign-in/" + encodeURIComponent(link) + "/session" : "/v1/sessions/" + encodeURIComponent(session), {
        cache: "no-store", headers: token ? { Authorization: "Bearer " + token } : {}, signal: AbortSignal.timeout(15000),
      });
      const now = await answer.json();
      if (answer.ok && now.state === "ended") { ended(now.ended); return; }
      if (gone) return; // it was said meanwhile how it ended
      if (answer.status === 404) { finish(plain(now.detail || answer.statusText)); return; }
      if (!answer.ok) notice(plain(now.detail || answer.statusText), true);
      else if (!opened) notice("The launcher does not let this page watch now: as many watch the session already as may. It is tried again.", true);
      else notice("The connection ended" + (reason ? ": " + plain(reason) : "") + ". It is tried again.", true);
    } catch {
      notice("The launcher cannot be reached. It is tried again.", true);
    }
    setTimeout(connect, retry);
    retry = Math.min(retry * 2, slowestRetry);
  }

  // A page that nobody sees asks for no pictures.
  document.addEventListener("visibilitychange", () => say({ type: document.hidden ? "pause" : "resume" }));
  connect();
})();
