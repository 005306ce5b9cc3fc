// Selenium as a worker, by chromedriver's debuggerAddress:
// node selenium.mjs HOST:PORT ACTIONS (see actions.mjs). Actions:
//   goto {url}  click {selector}  evaluate {expression}  screenshot {path}
//   newPage  cdp {method, params}  download {selector, path}  disconnect
//   bidi {method, params}, a command of WebDriver BiDi; seen {method}, the first event of that name
import { existsSync } from 'node:fs';
import { access, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Builder, By } from 'selenium-webdriver';
import chrome from 'selenium-webdriver/chrome.js';
import { run, usage } from './actions.mjs';

const [address, actions] = usage('selenium.mjs', 'HOST:PORT ACTIONS', 2);

// later is a promise that somebody else resolves.
function later() {
  const made = {};
  made.promise = new Promise((resolve) => { made.resolve = resolve; });
  return made;
}

await run(async () => {
  // The path is given so that Selenium does not download a driver.
  const driverPath = process.env.PATH.split(':').map((dir) => `${dir}/chromedriver`).find(existsSync);
  if (!driverPath) throw new Error('chromedriver is not installed: run "make deps"');
  const service = new chrome.ServiceBuilder(driverPath);
  const options = new chrome.Options().debuggerAddress(address);
  options.set('webSocketUrl', true); // WebDriver BiDi, beside the classic form
  const driver = await new Builder().forBrowser('chrome').setChromeOptions(options).setChromeService(service).build();
  const bidi = await driver.getBidi();
  const events = {};
  bidi.socket.on('message', (data) => {
    const { method, params } = JSON.parse(data);
    if (method) (events[method] ??= later()).resolve(params);
  });
  return {
    bidi: async ({ method, params = {} }) => {
      const { error, message, result } = await bidi.send({ method, params });
      if (error) throw new Error(`${error}: ${message}`);
      return result;
    },
    seen: async ({ method }) => (events[method] ??= later()).promise,
    goto: async ({ url }) => driver.get(url),
    click: async ({ selector }) => driver.findElement(By.css(selector)).click(),
    evaluate: async ({ expression }) => driver.executeScript(`return ${expression}`),
    screenshot: async ({ path }) => writeFile(path, Buffer.from(await driver.takeScreenshot(), 'base64')),
    newPage: async () => driver.switchTo().newWindow('tab'),
    cdp: async ({ method, params = {} }) => driver.sendAndGetDevToolsCommand(method, params),
    download: async ({ selector, path }) => {
      await driver.setDownloadPath(dirname(path));
      await driver.findElement(By.css(selector)).click();
      await driver.wait(() => access(path).then(() => true, () => false), 30000);
    },
    // quit ends chromedriver. A browser that it did not start goes on.
    disconnect: async () => driver.quit(),
  };
}, actions);
