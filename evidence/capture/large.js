// What is asked of a page, in an isolated world, before a snapshot of it is taken.
// Nothing here changes the page, or builds a string that is as long as the page.
(() => {
  const skipped = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "OBJECT", "EMBED"]);
  const maxTextChars = 64 << 10; // of one text or field
  const maxAttributeChars = 2048;

  // size counts the nodes and the characters of the document. It stops soon after
  // either of the bounds.
  const size = (maxNodes, maxChars) => {
    let nodes = 0, chars = 0;
    const roots = [document];
    for (let root; nodes <= maxNodes && chars <= maxChars && (root = roots.pop());) {
      const walker = document.createTreeWalker(root);
      for (let n = root; n && nodes <= maxNodes && chars <= maxChars; n = walker.nextNode()) {
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

  // Nobody typed the values of these inputs, nor the short values of hidden ones. The
  // lists in snapshot.go say the same.
  const untyped = new Set(["button", "submit", "reset", "image", "checkbox", "radio"]);
  const isTyped = (type, text) => text && !untyped.has(type) && (type !== "hidden" || text.length >= 16);

  // typed lists the texts in the document's fields, each as the type of its field and
  // the text. It returns null where there are more than the bound, or one is too long.
  const typed = (maxFields) => {
    const found = [];
    let tooMuch = false;
    const add = (type, text) => {
      if (!isTyped(type, text)) return;
      tooMuch = tooMuch || found.length >= maxFields || text.length > maxTextChars;
      if (!tooMuch) found.push([type, text]);
    };
    const roots = [document];
    for (let root; root = roots.pop();) {
      for (const e of root.querySelectorAll("input,textarea")) add(e.type, e.value);
      for (const e of root.querySelectorAll(editable)) {
        const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
        for (let n; !tooMuch && (n = walker.nextNode());) if (n.nodeValue.trim()) add("", n.nodeValue);
      }
      for (const e of root.querySelectorAll(":defined")) {
        if (e.shadowRoot) roots.push(e.shadowRoot);
      }
    }
    return tooMuch ? null : found;
  };

  // beginning returns the beginning of the document in the form of
  // DOMSnapshot.captureSnapshot, and what typed returns. Elements that would not be
  // written anyway are left out, and so are long texts.
  const beginning = (maxNodes, maxChars, maxFields) => {
    const strings = [], indexes = new Map();
    let charsLeft = maxChars, truncated = false;
    // string returns the index of a string, which it adds if need be.
    const string = (s) => {
      let i = indexes.get(s);
      if (i === undefined) {
        i = strings.push(s) - 1;
        indexes.set(s, i);
      }
      return i;
    };
    const nodes = {
      parentIndex: [], nodeType: [], nodeName: [], nodeValue: [], attributes: [], shadowRootType: {index: [], value: []},
      textValue: {index: [], value: []}, inputValue: {index: [], value: []},
    };
    const layout = {nodeIndex: [], styles: []};
    // addNode returns the index of the new node.
    const addNode = (parent, type, name, value, attributes) => {
      nodes.nodeType.push(type);
      nodes.nodeName.push(string(name));
      nodes.nodeValue.push(value === null ? -1 : string(value));
      nodes.attributes.push(attributes);
      return nodes.parentIndex.push(parent) - 1;
    };
    // reserve returns false where there is no room for so many characters.
    const reserve = (chars) => {
      charsLeft -= chars;
      truncated = truncated || charsLeft < 0 || nodes.parentIndex.length >= maxNodes;
      return !truncated;
    };
    // addElement returns the index of the new node, or -1 where there is no room for it.
    const addElement = (e, parent) => {
      const attributes = [];
      for (const a of e.attributes) {
        if (a.value.length > maxAttributeChars) continue;
        if (!reserve(a.name.length + a.value.length)) return -1;
        attributes.push(string(a.name), string(a.value));
      }
      const i = addNode(parent, 1, e.nodeName, null, attributes);
      if (e.isContentEditable) {
        layout.nodeIndex.push(i);
        layout.styles.push([string("read-write")]);
      }
      const values = e.tagName === "INPUT" ? nodes.inputValue : e.tagName === "TEXTAREA" ? nodes.textValue : null;
      if (values) {
        values.index.push(i);
        values.value.push(string(e.value.slice(0, maxTextChars)));
      }
      return i;
    };
    // stack has, for each open element, the next child to visit.
    const stack = [{next: document.documentElement, parent: addNode(-1, 9, "#document", null, [])}];
    while (stack.length && !truncated) {
      const here = stack[stack.length - 1], n = here.next;
      if (!n) {
        stack.pop();
        continue;
      }
      here.next = n.nextSibling;
      if (n.nodeType === 3) {
        const value = n.nodeValue.length > maxTextChars ? `[${n.nodeValue.length} characters left out]` : n.nodeValue;
        if (reserve(value.length)) addNode(here.parent, 3, "#text", value, []);
      } else if (n.nodeType === 1 && !skipped.has(n.tagName) && reserve(n.nodeName.length)) {
        const i = addElement(n, here.parent);
        if (i < 0) break;
        stack.push({next: n.firstChild, parent: i});
        if (n.shadowRoot) {
          const root = addNode(i, 11, "#document-fragment", null, []);
          nodes.shadowRootType.index.push(root);
          nodes.shadowRootType.value.push(string("open"));
          stack.push({next: n.shadowRoot.firstChild, parent: root});
        }
      }
    }
    return {documents: [{nodes, layout}], strings, typed: typed(maxFields), truncated};
  };

  return {size, typed, beginning};
})()
