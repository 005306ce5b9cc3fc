"use strict";
(() => {
  const refreshEvery = 2000; // milliseconds
  const longestText = 200000; // characters of a part that are shown
  const apiToken = new URLSearchParams(location.search).get("token");
  const at = (id) => document.getElementById(id);

  // el makes an element. Strings become text, never HTML: what is shown comes from
  // hostile pages.
  function el(tag, className, ...children) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    for (const c of children) {
      if (c !== null && c !== undefined && c !== "") e.append(c);
    }
    return e;
  }

  class Refusal extends Error {}

  async function ask(path, options = {}) {
    const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}) };
    if (apiToken) headers.Authorization = "Bearer " + apiToken;
    const response = await fetch(path, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(15000) });
    if (response.ok) return response;
    let text = response.status + " " + response.statusText;
    try {
      const p = await response.json();
      if (p.detail) text = p.code + ": " + p.detail;
    } catch { /* no problem document: the status is all there is */ }
    const refusal = new Refusal(text);
    refusal.status = response.status;
    throw refusal;
  }
  const askJSON = async (path) => (await ask(path)).json();
  // A list comes in pages: askAll asks for all of them.
  async function askAll(path) {
    const all = await askJSON(path);
    for (let next = all.next; next;) {
      const page = await askJSON(path + "?next=" + encodeURIComponent(next));
      all.items.push(...page.items);
      next = page.next === next ? null : page.next;
    }
    return all;
  }
  const v1 = (...parts) => "/v1/" + parts.map(encodeURIComponent).join("/");

  // Times that change are short and relative; the tooltip shows them in full.
  const clock = new Intl.DateTimeFormat(undefined, { month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  function span(seconds) {
    const s = Math.round(Math.abs(seconds));
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60 ? (s % 60) + " s" : "");
    if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    return Math.floor(s / 86400) + " days";
  }
  function moment(text, relative) {
    if (!text || text.startsWith("0001-")) return "";
    const t = el("time");
    t.dateTime = text;
    t.title = text;
    if (relative) {
      t.dataset.relative = "";
      age(t);
    } else {
      t.textContent = clock.format(new Date(text));
    }
    return t;
  }
  function age(t) {
    const left = (new Date(t.dateTime) - Date.now()) / 1000;
    t.textContent = left >= 0 ? "in " + span(left).trim() : span(left).trim() + " ago";
  }
  setInterval(() => document.querySelectorAll("time[data-relative]").forEach(age), 1000);

  function size(bytes) {
    if (bytes < 1024) return bytes + " B";
    if (bytes < 1048576) return (bytes / 1024).toFixed(1) + " KiB";
    return (bytes / 1048576).toFixed(1) + " MiB";
  }
  const words = (name) => name.replaceAll("_", " ");
  const state = (name) => el("span", "state " + (/^[a-z_]+$/.test(name) ? name : ""), words(name || "unknown"));
  function clipped(className, text) {
    if (!text) return "";
    const e = el("div", className + " clip", text);
    e.title = text;
    return e;
  }

  // paint redraws a place only if the facts have changed, so that a selection or an
  // open part survives a refresh.
  const painted = new Map();
  function paint(place, facts, draw) {
    const now = JSON.stringify(facts);
    if (painted.get(place) === now) return;
    painted.set(place, now);
    place.replaceChildren(...draw());
  }

  let profiles = [];
  let chosen = "";

  // Profiles that need a person come first, then those whose state will change.
  const urgency = { manual_review: 0, quarantined: 1, suspected_stale: 1, inspected: 1, resume_pending: 2, held: 3 };
  const rank = (r) => urgency[r.state] ?? 4;

  function drawProfiles() {
    const wanted = at("filter").value.trim().toLowerCase();
    const rows = profiles
      .filter((r) => [r.profile_id, r.account_id, r.proxy_id, r.state, r.owner_worker_id, r.task_id].some((v) => (v || "").toLowerCase().includes(wanted)))
      .sort((a, b) => rank(a) - rank(b) || a.profile_id.localeCompare(b.profile_id));
    const focused = document.activeElement.closest("#profiles tr")?.dataset.profile;
    paint(at("profiles"), [rows, chosen], () => rows.map((r) => {
      const open = el("button", "", r.profile_id);
      open.type = "button";
      const busy = r.state === "held" || r.state === "suspected_stale";
      const row = el("tr", r.profile_id === chosen ? "chosen" : "",
        el("td", "", open, el("div", "sub", [r.account_id, r.proxy_id].filter(Boolean).join(" · "))),
        el("td", "", state(r.state), busy ? "" : el("div", "sub", [words(r.reason || ""), r.warm_since && "browser is warm"].filter(Boolean).join(" · "))),
        el("td", "num", String(r.lease_token)),
        el("td", "", clipped("", r.owner_worker_id), clipped("sub", r.task_id)),
        el("td", "wide", clipped("", r.last_known_url), clipped("sub", r.last_known_step)),
        el("td", "num wide", busy ? moment(r.expires_at, true) : ""));
      row.dataset.profile = r.profile_id;
      return row;
    }));
    const row = [...at("profiles").children].find((r) => r.dataset.profile === focused);
    if (row && !row.contains(document.activeElement)) row.querySelector("button").focus();
    at("no-profiles").hidden = rows.length > 0;
    at("no-profiles").textContent = profiles.length ? "No profile matches." : "No profiles yet.";
    const waiting = profiles.filter((r) => r.state === "manual_review").length;
    const held = profiles.filter((r) => r.state === "held").length;
    at("summary").textContent = profiles.length + (profiles.length === 1 ? " profile" : " profiles") + ", " + held + " held" +
      (waiting ? ", " + waiting + " waiting for a person" : "");
    document.title = (waiting ? "(" + waiting + ") " : "") + "Leasehold";
  }

  function drawSessions(sessions) {
    paint(at("sessions"), sessions, () => sessions.map((s) => el("tr", "",
      el("td", "mono wide", s.session_id),
      el("td", "", s.profile_id, el("div", "sub", "token " + s.lease_token)),
      el("td", "", clipped("", s.worker_id), clipped("sub", s.task_id)),
      el("td", "", state(s.state)),
      el("td", "num", String(s.connections)),
      el("td", "num wide", moment(s.acquired_at, true)))));
    at("no-sessions").hidden = sessions.length > 0;
  }

  function drawLease(r) {
    paint(at("lease"), r, () => {
      const list = el("dl");
      const line = (name, value) => { if (value) list.append(el("dt", "", name), el("dd", "", value)); };
      line("State", state(r.state));
      line("Reason", words(r.reason || ""));
      line("Token", String(r.lease_token));
      line("Owner", [r.owner_worker_id, r.task_id].filter(Boolean).join(", "));
      line("Home", r.other_home ? r.home + " or " + r.other_home + ": contested" : r.home);
      line("Remembered by", r.remembered_by);
      line("Account", r.account_id);
      line("Proxy", r.proxy_id);
      line("Last URL", r.last_known_url);
      line("Last step", r.last_known_step);
      line("Last safe checkpoint", r.last_safe_checkpoint);
      line("Resume from", r.resume_from);
      line("Acquired", moment(r.acquired_at));
      line("Heartbeat", moment(r.heartbeat_at, true));
      if (r.state === "held" || r.state === "suspected_stale") line("Expires", moment(r.expires_at, true));
      line("Suspected", moment(r.suspected_at));
      line("Recovery began", moment(r.recovery_started_at));
      line("Released", moment(r.released_at));
      if (r.warm_since) line("Browser warm since", moment(r.warm_since, true));
      if (new Date(r.available_after) > new Date()) line("Available", moment(r.available_after, true));
      line("Outcome", r.outcome);
      if (r.by_hand) line(r.state === "held" ? "By hand" : "Last by hand", r.by_hand.holder + (r.by_hand.note ? ": " + r.by_hand.note : ""));
      if (r.review) line("Reviewed", r.review.decision + " by " + r.review.reviewer + (r.review.note ? ": " + r.review.note : ""));
      return [list];
    });
  }

  // The form belongs to the token that it was shown with: what is typed survives
  // refreshes, and a new token empties the form.
  function drawReview(r) {
    const form = at("review");
    const key = [r.profile_id, r.lease_token, r.evidence_id].join(" ");
    if (r.state !== "manual_review") {
      form.hidden = true;
      form.dataset.key = "";
      return;
    }
    if (form.dataset.key !== key) {
      form.reset();
      form.dataset.key = key;
      form.dataset.profile = r.profile_id;
      form.dataset.token = String(r.lease_token);
      form.dataset.evidence = r.evidence_id;
      at("review-token").textContent = String(r.lease_token);
      at("review-evidence").textContent = r.evidence_id || "none";
      at("review-home").replaceChildren(...[r.home, r.other_home].filter(Boolean).map((h) => new Option(h, h)));
      at("review-homes").hidden = !r.other_home;
      at("review-answer").textContent = "";
      at("reviewed").hidden = true;
      try { at("reviewer").value = localStorage.getItem("leasehold.reviewer") || ""; } catch { /* storage may be off */ }
    }
    form.hidden = false;
  }

  at("review").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = at("review");
    const answer = at("review-answer");
    const { profile, token: seen, evidence } = form.dataset;
    const decision = new FormData(form).get("decision");
    const reviewer = at("reviewer").value.trim();
    const say = (className, text) => { answer.className = className; answer.textContent = text; };
    if (!decision) return say("bad", "Choose approve or keep.");
    if (!reviewer) return say("bad", "Say who decides.");
    const home = decision === "approve" && !at("review-homes").hidden ? at("review-home").value : "";
    const button = form.querySelector("button");
    button.disabled = true;
    say("", "Recording...");
    try {
      await ask(v1("profiles", profile, "review"), {
        method: "POST",
        body: JSON.stringify({ lease_token: Number(seen), decision, reviewer, evidence_id: evidence, home, note: at("note").value.trim() }),
      });
      try { localStorage.setItem("leasehold.reviewer", reviewer); } catch { /* storage may be off */ }
      say("good", "Kept in review, with the note.");
      if (decision === "approve") {
        at("reviewed").textContent = "Approved by " + reviewer + ".";
        at("reviewed").hidden = false;
      }
      at("note").value = "";
    } catch (e) {
      say("bad", e.message);
    } finally {
      button.disabled = false;
    }
    refresh();
  });

  function drawInspection(found) {
    at("inspection").hidden = !found;
    if (!found) return;
    paint(at("inspection-body"), found, () => [
      found.decision ? el("p", "decision", "Decision: ", el("b", "", words(found.decision))) : "",
      found.reasons.length ? el("ul", "reasons", ...found.reasons.map((r) => el("li", "", r))) : "",
      el("table", "", el("tbody", "", ...found.facts.map((f) => el("tr", "",
        el("td", "", words(f.name)),
        el("td", "answer " + (f.answer === "unknown" ? "unknown" : ""), f.answer),
        el("td", "sub", f.how))))),
      found.unsafe_requests?.length ? el("h4", "", "What pages sent, and what it was answered") : "",
      found.unsafe_requests?.length ? el("table", "", el("tbody", "", ...found.unsafe_requests.map((r) => el("tr", "",
        el("td", "", r.method + " " + r.url + (r.times > 1 ? " (" + r.times + " times)" : "")),
        el("td", "answer", r.answer || "no answers"),
        el("td", "sub", r.counts + (r.since_safe_checkpoint ? ", since the last safe checkpoint" : "")))))) : "",
    ].filter(Boolean));
  }

  // Screenshots are fetched by the script, since an image tag cannot show the API token.
  // Only what is declared as an image is shown as one.
  const images = new Map();
  async function imageOf(bundle, part) {
    const path = v1("evidence", bundle, part);
    if (!images.has(path)) {
      const blob = await (await ask(path)).blob();
      if (!/^image\/(png|jpeg)$/.test(blob.type)) throw new Error("not a picture: " + blob.type);
      images.set(path, URL.createObjectURL(blob));
    }
    return images.get(path);
  }
  function forgetImages() {
    for (const url of images.values()) URL.revokeObjectURL(url);
    images.clear();
  }

  function drawPart(bundle, part) {
    const open = el("button", "", part.name);
    open.type = "button";
    const item = el("li", "", part.missing ? part.name : open,
      el("span", "sub", "  " + words(part.kind) + (part.missing ? ": missing, " + part.missing : ", " + size(part.bytes))));
    open.addEventListener("click", async () => {
      const shown = item.querySelector("pre");
      if (shown) return shown.remove();
      const pre = el("pre", "mono", "Loading...");
      item.append(pre);
      try {
        const blob = await (await ask(v1("evidence", bundle, part.name))).blob();
        const text = await blob.slice(0, longestText).text();
        pre.textContent = text + (blob.size > longestText ? "\n... " + size(blob.size - longestText) + " more" : "");
      } catch (e) {
        pre.textContent = e.message;
      }
    });
    return item;
  }

  function drawBundle(b, first) {
    const shots = b.parts.filter((p) => (p.kind === "detail" || p.kind === "screenshot") && !p.missing);
    const others = b.parts.filter((p) => !shots.includes(p));
    const gallery = el("div", "shots");
    const whole = el("details", "",
      el("summary", "", words(b.recovery_reason || "released"), el("span", "sub", moment(b.at), " · token " + b.lease_token),
        b.recovery_reason === "picture" ? clipped("sub", [b.last_known_url, b.last_known_step, b.checkpoint && "checkpoint " + b.checkpoint].filter(Boolean).join(" · ")) : ""),
      gallery, el("ul", "parts", ...others.map((p) => drawPart(b.evidence_id, p))));
    whole.title = b.evidence_id;
    const load = () => {
      if (!whole.open || gallery.childElementCount) return;
      for (const p of shots) {
        const img = el("img");
        img.alt = "screenshot " + p.name;
        const figure = el("figure", "", img, el("figcaption", "", p.name + ", " + size(p.bytes)));
        img.addEventListener("click", () => figure.classList.toggle("full"));
        gallery.append(figure);
        imageOf(b.evidence_id, p.name).then((url) => { img.src = url; }, (e) => { img.replaceWith(el("p", "bad", e.message)); });
      }
    };
    whole.addEventListener("toggle", load);
    whole.open = first;
    return whole;
  }

  function drawEvidence(bundles) {
    at("evidence").hidden = !bundles.length;
    // The newest bundle is open, and so is the newest one that has a screenshot.
    const shows = bundles.findIndex((b) => b.parts.some((p) => p.kind === "screenshot" && !p.missing));
    paint(at("evidence-body"), bundles, () => bundles.map((b, i) => drawBundle(b, i === 0 || i === shows)));
  }

  function drawHistory(events) {
    at("history").hidden = !events.length;
    paint(at("history-body"), events, () => events.toReversed().map((e) => {
      const who = e.event === "profile_lock_conflict"
        ? [e.blocked_worker_id, e.blocked_task_id, "blocked by", e.current_worker_id, e.current_task_id]
        : e.event === "late_write"
          ? [e.write, "with token", e.lease_token, e.current_token ? "current " + e.current_token : ""]
          : [e.owner_worker_id, e.task_id];
      return el("li", "", moment(e.at), el("div", "",
        el("b", "", words(e.event)), el("span", "sub", e.lease_token ? "  token " + e.lease_token : ""),
        el("div", "sub", who.filter(Boolean).join(" ")),
        el("div", "sub", [e.reason && words(e.reason), e.decision && "decision " + words(e.decision), e.reviewer && "by " + e.reviewer, e.outcome && "outcome " + e.outcome].filter(Boolean).join(" · ")),
        (e.reasons || []).length ? el("div", "sub", e.reasons.join("; ")) : "",
        e.last_known_url ? clipped("sub", e.last_known_url) : ""));
    }));
  }

  // optional replaces the 404 of something that need not exist: an inspection, a bundle.
  const optional = (request, instead) => request.catch((e) => {
    if (e instanceof Refusal && e.status === 404) return instead;
    throw e;
  });

  async function refreshDetail() {
    const profile = chosen;
    if (!profile) return;
    const [record, found, bundles, events] = await Promise.all([
      askJSON(v1("profiles", profile)),
      optional(askJSON(v1("profiles", profile, "inspection")), null),
      optional(askAll(v1("profiles", profile, "evidence")), { items: [] }),
      optional(askAll(v1("profiles", profile, "history")), { items: [] }),
    ]);
    if (profile !== chosen) return; // another one was chosen meanwhile
    at("detail-title").textContent = record.profile_id;
    drawLease(record);
    drawReview(record);
    drawInspection(found);
    drawEvidence(bundles.items);
    drawHistory(events.items);
    at("detail").hidden = false;
    document.querySelector("main").classList.add("open");
  }

  function choose(profile) {
    if (profile !== chosen) {
      forgetImages();
      painted.delete(at("evidence-body"));
      at("reviewed").hidden = true;
      at("detail").scrollTop = 0;
    }
    chosen = profile;
    if (!profile) {
      at("detail").hidden = true;
      document.querySelector("main").classList.remove("open");
    }
    drawProfiles();
  }

  async function refreshReady() {
    let text = "ready";
    try {
      await ask("/readyz");
    } catch (e) {
      text = e instanceof Refusal ? "not ready: " + e.message : "unreachable";
    }
    at("ready").className = "ready " + (text === "ready" ? "yes" : "no");
    at("ready-text").textContent = text;
  }

  function report(e) {
    at("trouble").hidden = !e;
    if (!e) return;
    at("trouble").textContent = e.status === 401
      ? "The launcher wants its token: open this page with ?token=TOKEN."
      : e instanceof Refusal ? e.message : "The launcher cannot be reached; what is shown may be old. Trying again.";
  }

  let timer = 0;
  let running = false;
  async function refresh() {
    if (running) return; // the refresh that is running schedules the next one
    running = true;
    clearTimeout(timer);
    try {
      const [records, sessions] = await Promise.all([askAll(v1("profiles")), askAll(v1("sessions")), refreshReady()]);
      profiles = records.items;
      drawProfiles();
      drawSessions(sessions.items);
      await refreshDetail();
      report(null);
    } catch (e) {
      report(e);
    } finally {
      running = false;
      timer = setTimeout(refresh, refreshEvery);
    }
  }

  // The chosen profile is in the URL's fragment, so that it can be linked to.
  function follow() {
    let profile = "";
    try { profile = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of ours */ }
    choose(profile);
    refreshDetail().then(() => report(null), report);
  }
  at("profiles").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row) location.hash = encodeURIComponent(row.dataset.profile);
  });
  at("close").addEventListener("click", () => { location.hash = ""; });
  at("filter").addEventListener("input", drawProfiles);
  addEventListener("hashchange", follow);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  follow();
  refresh();
})();
