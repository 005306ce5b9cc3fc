// chrome-remote-interface as a worker: node cri.mjs HOST:PORT ACTIONS
// (see actions.mjs). It takes the first page of /json/list, and its API from
// /json/protocol. Actions:
//   goto {url}  click {selector}  evaluate {expression}  screenshot {path}
//   newContext  cdp {method, params}  call {domain, command, params}
//   events {method}  intercept {pattern, body}  download {selector, path}
//   close  disconnect
// call uses the client's own methods, such as client.Lease.step(params).
import { writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import CDP from 'chrome-remote-interface';
import { downloadedFile, printEvents, run, usage } from './actions.mjs';

const [address, actions] = usage('cri.mjs', 'HOST:PORT ACTIONS', 2);
const colon = address.lastIndexOf(':');
const endpoint = { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };

await run(async () => {
  const first = await CDP(endpoint);
  let client = first;
  let browser;
  await client.Page.enable();
  const evaluate = async ({ expression }) => {
    const { result, exceptionDetails } = await client.Runtime.evaluate({ expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const click = async ({ selector }) => {
    const [x, y] = await evaluate({
      expression: `(() => { const r = document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect();
        return [r.x + r.width / 2, r.y + r.height / 2]; })()`,
    });
    for (const type of ['mousePressed', 'mouseReleased']) {
      await client.Input.dispatchMouseEvent({ type, x, y, button: 'left', clickCount: 1 });
    }
  };
  return {
    goto: async ({ url }) => {
      const loaded = new Promise((resolve) => client.once('Page.loadEventFired', resolve));
      const { errorText } = await client.Page.navigate({ url });
      if (errorText) throw new Error(errorText);
      await loaded;
    },
    click,
    evaluate,
    screenshot: async ({ path }) => {
      const { data } = await client.Page.captureScreenshot();
      await writeFile(path, Buffer.from(data, 'base64'));
    },
    newContext: async () => {
      // Chrome creates contexts only on the browser's own socket. They end with that
      // socket.
      const { webSocketDebuggerUrl } = await CDP.Version(endpoint);
      browser = await CDP({ target: webSocketDebuggerUrl, local: true });
      const { browserContextId } = await browser.Target.createBrowserContext();
      const { targetId } = await browser.Target.createTarget({ url: 'about:blank', browserContextId });
      client = await CDP({ ...endpoint, target: targetId });
      await client.Page.enable();
    },
    intercept: async ({ pattern, body }) => {
      client.Fetch.requestPaused(({ requestId }) =>
        client.Fetch.fulfillRequest({ requestId, responseCode: 200, body: Buffer.from(body).toString('base64') }));
      await client.Fetch.enable({ patterns: [{ urlPattern: `*${pattern}*` }] });
    },
    download: async ({ selector, path }) => {
      await client.Browser.setDownloadBehavior({ behavior: 'allow', downloadPath: dirname(path), eventsEnabled: true });
      const done = downloadedFile(client);
      await click({ selector });
      return done;
    },
    cdp: async ({ method, params }) => client.send(method, params),
    call: async ({ domain, command, params }) => client[domain][command](params),
    events: async ({ method }) => printEvents(client, method),
    close: async () => client.Browser.close(),
    disconnect: async () => {
      for (const one of new Set([client, browser, first])) await one?.close();
    },
  };
}, actions);
