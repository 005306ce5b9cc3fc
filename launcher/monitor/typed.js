// This runs in an isolated world of every document, which the page cannot see. It tells the
// launcher of each field that somebody types into, at once, since the document may be gone a
// moment later: what the field is, and never what is typed. Only a text that may be a card's or
// an account's number is told, for the launcher to look at its check digits.
(() => {
  if (globalThis.watchTyping) return;
  const again = 100; // ms within which keys for one field are told once
  const settles = 500; // ms after the last key after which a number counts as whole
  const most = 300, within = 10000; // no more than this is told in so many ms
  const retry = 20, tries = 100, later = 500, lateTries = 120; // ms, and how often, at first and later
  const maxRoots = 16, maxAttribute = 100, maxURL = 4096;

  const texts = ['text', 'email', 'tel', 'url', 'number', 'search', 'password', 'date', 'datetime-local', 'month', 'week', 'time'];
  const described = ['autocomplete', 'inputmode', 'role', 'enterkeyhint'];
  const number = /^(\d[\d\s-]{11,30}\d|[a-z]{2}\d{2}[\sa-z\d]{11,50})$/i;

  // Pages may have a form's fields stand in the place of its methods.
  const { getAttribute, querySelectorAll, checkVisibility } = Element.prototype;

  const isElement = (n) => n?.nodeType === Node.ELEMENT_NODE;
  const isText = (e) => e.localName === 'input' ? texts.includes(e.type) && !e.readOnly
    : e.localName === 'textarea' ? !e.readOnly
    : e.isContentEditable === true || ['textbox', 'searchbox'].includes(getAttribute.call(e, 'role'));
  const valueOf = (e) => e.localName === 'input' && e.type !== 'password' || e.localName === 'textarea' ? e.value.trim() : '';

  // around is the nearest element around a field that fits, out of open shadow roots, too.
  function around(e, selector) {
    for (; e; e = e.getRootNode().host) {
      const found = e.closest(selector);
      if (found) return found;
    }
    return null;
  }

  function searches(e) {
    if (around(e, 'search,[role=search i]')) return true;
    const form = around(e, 'form');
    if (!form || getAttribute.call(form, 'method')?.trim().toLowerCase() !== 'get') return false;
    return textsOf(form).length === 1;
  }

  // textsOf are the fields of a form for texts that somebody can see.
  function textsOf(form) {
    const fields = [...querySelectorAll.call(form, 'input,textarea,[contenteditable],[role=textbox],[role=searchbox]')].filter(isText);
    return fields.filter((f) => checkVisibility.call(f, { opacityProperty: true, visibilityProperty: true }));
  }

  let began = 0, count = 0;
  function tell(what) {
    const now = Date.now();
    if (now - began > within) [began, count] = [now, 0];
    if (count++ >= most) return;
    untold.push(JSON.stringify({ ...what, url: location.href.slice(0, maxURL) }));
    pass();
  }
  // The function by which the launcher is told comes a moment after the document, and later
  // where the document is busy, or the host.
  const untold = [];
  let tried = 0, retrying;
  function pass() {
    if (globalThis.leaseholdTyped) for (const text of untold.splice(0)) leaseholdTyped(text);
    else if (!retrying && tried++ < tries + lateTries) retrying = setTimeout(() => { retrying = 0; pass(); }, tried < tries ? retry : later);
  }

  let last, lastAt = 0, lastNumber = ''; // what was told
  function typed(e, value = '', whole = false) {
    const now = Date.now();
    if (!number.test(value)) value = '';
    if (!whole && e === last && now - lastAt < again && (!value || value === lastNumber)) return;
    [last, lastAt, lastNumber] = [e, now, value];
    const attributes = { type: e.localName === 'input' ? e.type : '' };
    for (const name of described) attributes[name] = (getAttribute.call(e, name) ?? '').slice(0, maxAttribute);
    tell({ tag: e.localName, attributes, value, searches: searches(e) });
  }

  // A closed shadow root hides its fields from the world outside of it. The launcher finds the
  // root of such a host, and gives it to watchClosed.
  const closed = new WeakMap(); // by host, whether somebody typed in it
  const hosts = []; // those that wait
  let roots = 0;
  function hides(host, typing) {
    if (host.shadowRoot || closed.get(host)) return;
    if (!closed.has(host)) {
      if (roots++ >= maxRoots) return;
      hosts.push(host);
      tell({ closed: true });
    }
    closed.set(host, typing);
  }
  globalThis.closedHost = () => hosts.shift();
  globalThis.watchClosed = (root) => {
    watchTyping(root);
    const active = root.activeElement;
    if (!active || !closed.get(root.host)) return;
    if (isText(active)) typed(active, valueOf(active));
    else hides(active, true);
  };

  let waiting, settling;
  const settled = (e) => typed(e, valueOf(e));
  // A page may keep what is typed for itself, so that no input follows.
  function awaitInput(e) {
    waiting = e;
    setTimeout(() => {
      if (waiting === e) typed(e);
      waiting = null;
    });
  }

  const inserts = (event) => /^insert(?!LineBreak|Paragraph)/.test(event.inputType);
  const heard = {
    beforeinput(event, e) {
      if (!inserts(event)) return;
      if (isText(e)) awaitInput(e);
      else hides(e, true);
    },
    input(event, e) {
      if (!inserts(event)) return;
      if (!isText(e)) return hides(e, true);
      waiting = null;
      clearTimeout(settling);
      if (event.data?.length > 1) return typed(e, valueOf(e), true); // a text, and no key
      typed(e);
      settling = setTimeout(settled, settles, e);
    },
    change(_, e) {
      if (isText(e) && number.test(valueOf(e))) settled(e);
    },
    keydown(event, e) {
      if (event.key === 'Enter') return heard.change(event, e); // what it sends may come before the change
      if (event.key?.length === 1 && !event.metaKey && (!event.ctrlKey || event.altKey) && isText(e)) awaitInput(e);
    },
    focusin(_, e) {
      if (e.localName.includes('-') && !isText(e)) hides(e, false);
    },
  };
  globalThis.watchTyping = (root) => {
    for (const [type, hear] of Object.entries(heard)) {
      root.addEventListener(type, (event) => {
        const e = event.composedPath()[0];
        if (event.isTrusted && isElement(e)) hear(event, e);
      }, { capture: true, passive: true });
    }
  };
  watchTyping(globalThis);
})();
