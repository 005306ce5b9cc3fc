// What evidence asks of a page, in a world of its own, before it takes a snapshot.
// Nothing here changes the page, or builds a string that is as long as the page.
(() => {
  const leftOut = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "OBJECT", "EMBED"]);
  const longest = 64 << 10; // of a text or a field, in characters

  // size counts the nodes and the characters of the document, up to a bound of each.
  const size = (mostNodes, mostChars) => {
    let nodes = 0, chars = 0;
    const roots = [document];
    for (let root; nodes <= mostNodes && chars <= mostChars && (root = roots.pop());) {
      const walker = document.createTreeWalker(root);
      for (let n = root; n && nodes <= mostNodes && chars <= mostChars; n = walker.nextNode()) {
        nodes++;
        if (n.nodeValue) chars += n.nodeValue.length;
        if (n.attributes) for (const a of n.attributes) chars += a.value.length;
        if (n.shadowRoot) roots.push(n.shadowRoot);
        if (n.tagName === "TEMPLATE") roots.push(n.content);
        if (n.tagName === "TEXTAREA" || n.tagName === "INPUT") chars += n.value.length;
      }
    }
    return {nodes, chars};
  };

  const editable = "[contenteditable],[role=textbox],[role=searchbox]";

  // Fields whose value nobody typed, and no secret; hidden ones, while it is short.
  const untyped = new Set(["button", "submit", "reset", "image", "checkbox", "radio"]);
  const holds = (kind, text) => text && !untyped.has(kind) && (kind !== "hidden" || text.length >= 16);

  // typed lists what is in the document's fields: the kind of a field, and its text.
  // It is null where there is more than that.
  const typed = (most) => {
    const found = [];
    let more = false;
    const add = (kind, text) => {
      if (!holds(kind, text)) return;
      more = more || found.length >= most || text.length > longest;
      if (!more) found.push([kind, text]);
    };
    const roots = [document];
    for (let root; root = roots.pop();) {
      for (const e of root.querySelectorAll("input,textarea")) add(e.type, e.value);
      for (const e of root.querySelectorAll(editable)) {
        const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
        for (let n; !more && (n = walker.nextNode());) if (n.nodeValue.trim()) add("", n.nodeValue);
      }
      for (const e of root.querySelectorAll(":defined")) {
        if (e.shadowRoot) roots.push(e.shadowRoot);
      }
    }
    return more ? null : found;
  };

  // cut is the beginning of the document, in the form of DOMSnapshot.captureSnapshot:
  // elements that are left out anyway are left out here, and so are long texts.
  const cut = (mostNodes, mostChars, fields) => {
    const strings = [], places = new Map();
    let left = mostChars, full = false;
    const string = (s) => {
      let i = places.get(s);
      if (i === undefined) {
        i = strings.push(s) - 1;
        places.set(s, i);
      }
      return i;
    };
    const nodes = {
      parentIndex: [], nodeType: [], nodeName: [], nodeValue: [], attributes: [], shadowRootType: {index: [], value: []},
      textValue: {index: [], value: []}, inputValue: {index: [], value: []},
    };
    const layout = {nodeIndex: [], styles: []};
    const put = (parent, type, name, value, attributes) => {
      nodes.nodeType.push(type);
      nodes.nodeName.push(string(name));
      nodes.nodeValue.push(value === null ? -1 : string(value));
      nodes.attributes.push(attributes);
      return nodes.parentIndex.push(parent) - 1;
    };
    const spend = (n) => {
      left -= n;
      full = full || left < 0 || nodes.parentIndex.length >= mostNodes;
      return !full;
    };
    const element = (e, parent) => {
      const attributes = [];
      for (const a of e.attributes) {
        if (a.value.length > 2048) continue;
        if (!spend(a.name.length + a.value.length)) return -1;
        attributes.push(string(a.name), string(a.value));
      }
      const i = put(parent, 1, e.nodeName, null, attributes);
      if (e.isContentEditable) {
        layout.nodeIndex.push(i);
        layout.styles.push([string("read-write")]);
      }
      const values = e.tagName === "INPUT" ? nodes.inputValue : e.tagName === "TEXTAREA" ? nodes.textValue : null;
      if (values) {
        values.index.push(i);
        values.value.push(string(e.value.slice(0, longest)));
      }
      return i;
    };
    const way = [{next: document.documentElement, parent: put(-1, 9, "#document", null, [])}];
    while (way.length && !full) {
      const here = way[way.length - 1], n = here.next;
      if (!n) {
        way.pop();
        continue;
      }
      here.next = n.nextSibling;
      if (n.nodeType === 3) {
        const value = n.nodeValue.length > longest ? `[${n.nodeValue.length} characters left out]` : n.nodeValue;
        if (spend(value.length)) put(here.parent, 3, "#text", value, []);
      } else if (n.nodeType === 1 && !leftOut.has(n.tagName) && spend(n.nodeName.length)) {
        const i = element(n, here.parent);
        if (i < 0) break;
        way.push({next: n.firstChild, parent: i});
        if (n.shadowRoot) {
          const root = put(i, 11, "#document-fragment", null, []);
          nodes.shadowRootType.index.push(root);
          nodes.shadowRootType.value.push(string("open"));
          way.push({next: n.shadowRoot.firstChild, parent: root});
        }
      }
    }
    return {documents: [{documentURL: string(""), nodes, layout}], strings, typed: typed(fields), full};
  };

  return {size, typed, cut};
})()
