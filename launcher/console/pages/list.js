"use strict";
(() => {
  const refreshEvery = 2000; // milliseconds
  const apiToken = new URLSearchParams(location.search).get("token");
  const at = (id) => document.getElementById(id);

  // el makes an element. Strings become text, never HTML: what is shown comes from
  // hostile pages. Characters that cannot be seen, or that turn the direction of writing,
  // are shown as U+FFFD.
  function el(tag, className, ...children) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    for (const c of children) {
      if (c !== null && c !== undefined && c !== "") e.append(typeof c === "string" ? c.replace(/[\p{Cc}\p{Cf}]/gu, "\ufffd") : c);
    }
    return e;
  }

  class Refusal extends Error {}

  async function ask(path) {
    const headers = apiToken ? { Authorization: "Bearer " + apiToken } : {};
    const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(15000) });
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
  const pageOf = (profile) => "/console/" + encodeURIComponent(profile) + (apiToken ? "?token=" + encodeURIComponent(apiToken) : "");

  // Times are short and relative; the tooltip shows them in full.
  function span(seconds) {
    const s = Math.round(Math.abs(seconds));
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60 ? (s % 60) + " s" : "");
    if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    return Math.floor(s / 86400) + " days";
  }
  function moment(text) {
    if (!text || text.startsWith("0001-")) return "";
    const t = el("time");
    t.dateTime = text;
    t.title = text;
    t.dataset.relative = "";
    age(t);
    return t;
  }
  function age(t) {
    const left = (new Date(t.dateTime) - Date.now()) / 1000;
    t.textContent = left >= 0 ? "in " + span(left).trim() : span(left).trim() + " ago";
  }
  setInterval(() => document.querySelectorAll("time[data-relative]").forEach(age), 1000);

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

  // Profiles that need a person come first, then those whose state will change.
  const urgency = { manual_review: 0, quarantined: 1, suspected_stale: 1, inspected: 1, resume_pending: 2, held: 3 };
  const rank = (r) => urgency[r.state] ?? 4;

  function drawProfiles() {
    const wanted = at("filter").value.trim().toLowerCase();
    const rows = profiles
      .filter((r) => [r.profile_id, r.account_id, r.proxy_id, r.state, r.owner_worker_id, r.task_id].some((v) => (v || "").toLowerCase().includes(wanted)))
      .sort((a, b) => rank(a) - rank(b) || a.profile_id.localeCompare(b.profile_id));
    const focused = document.activeElement.closest("#profiles tr")?.dataset.profile;
    paint(at("profiles"), rows, () => rows.map((r) => {
      const open = el("a", "", r.profile_id);
      open.setAttribute("href", pageOf(r.profile_id));
      const busy = r.state === "held" || r.state === "suspected_stale";
      const row = el("tr", "",
        el("td", "", open, el("div", "sub", [r.account_id, r.proxy_id].filter(Boolean).join(" · "))),
        el("td", "", state(r.state), busy ? "" : el("div", "sub", [words(r.reason || ""), r.warm_since && "browser is warm"].filter(Boolean).join(" · "))),
        el("td", "num wide", String(r.lease_token)),
        el("td", "", clipped("", r.owner_worker_id), clipped("sub", r.task_id)),
        el("td", "wide", clipped("", r.last_known_url), clipped("sub", r.last_known_step)),
        el("td", "num wide", busy ? moment(r.expires_at) : ""));
      row.dataset.profile = r.profile_id;
      return row;
    }));
    const row = [...at("profiles").children].find((r) => r.dataset.profile === focused);
    if (row && !row.contains(document.activeElement)) row.querySelector("a").focus();
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
      el("td", "num wide", String(s.connections)),
      el("td", "num wide", moment(s.acquired_at)))));
    at("no-sessions").hidden = sessions.length > 0;
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
      const [records, sessions] = await Promise.all([askAll("/v1/profiles"), askAll("/v1/sessions"), refreshReady()]);
      profiles = records.items;
      drawProfiles();
      drawSessions(sessions.items);
      report(null);
    } catch (e) {
      report(e);
    } finally {
      running = false;
      timer = setTimeout(refresh, refreshEvery);
    }
  }

  at("profiles").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !event.target.closest("a") && !String(getSelection())) location.assign(pageOf(row.dataset.profile));
  });
  at("filter").addEventListener("input", drawProfiles);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  // Earlier versions had a profile's page in the fragment.
  if (location.hash.length > 1) {
    try { location.replace(pageOf(decodeURIComponent(location.hash.slice(1)))); } catch { /* not one of ours */ }
  }
  refresh();
})();
