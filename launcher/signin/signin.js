// Called in a world of the launcher's own. Members of document are taken from its prototype, since a page
// can hide them behind elements with their names.
function(what, origin, selectors, text) {
  const find = s => s ? Document.prototype.querySelector.call(document, s) : null;
  const got = (of, name) => Object.getOwnPropertyDescriptor(of, name).get.call(document);
  const shown = e => e instanceof HTMLInputElement && e.isConnected && !e.disabled && !e.readOnly &&
    e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
  if (what === 'look') {
    const found = {};
    for (const name in selectors) found[name] = shown(find(selectors[name]));
    globalThis.document_ ??= performance.timeOrigin + ' ' + Math.random();
    return {document: globalThis.document_, origin: location.origin, loading: got(Document.prototype, 'readyState') === 'loading', shown: found};
  }
  if (location.origin !== origin || window.top !== window) return {problem: 'the document is another one'};
  const field = find(selectors.field);
  if (!shown(field)) return {problem: 'the field is gone'};
  if (what === 'submit') {
    const button = find(selectors.submit);
    if (button) HTMLElement.prototype.click.call(button);
    else if (field.form) HTMLFormElement.prototype.requestSubmit.call(field.form);
    else return {problem: 'there is nothing that sends it'};
    return {};
  }
  // Whatever the site's file names, a password is not put where it can be read.
  if (selectors.name === 'password' && field.type !== 'password') return {problem: 'the field would show it: want an input of type password'};
  field.focus();
  field.select();
  if (got(Document.prototype, 'activeElement') !== field || find(selectors.field) !== field || !shown(field))
    return {problem: 'the page took the field or its focus away'};
  Document.prototype.execCommand.call(document, 'insertText', false, text);
  return field.value === text ? {} : {problem: 'the field did not take what was typed'};
}
