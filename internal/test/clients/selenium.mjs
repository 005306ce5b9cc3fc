// Selenium as a worker, by chromedriver's debuggerAddress:
// node selenium.mjs HOST:PORT ACTIONS (see actions.mjs). Actions:
//   goto {url}  click {selector}  evaluate {expression}  screenshot {path}
//   newPage  cdp {method, params}  download {selector, path}  disconnect
import { existsSync } from 'node:fs';
import { access, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Builder, By } from 'selenium-webdriver';
import chrome from 'selenium-webdriver/chrome.js';
import { run, usage } from './actions.mjs';

const [address, actions] = usage('selenium.mjs', 'HOST:PORT ACTIONS', 2);

await run(async () => {
  // The path is given so that Selenium does not download a driver.
  const driverPath = process.env.PATH.split(':').map((dir) => `${dir}/chromedriver`).find(existsSync);
  if (!driverPath) throw new Error('chromedriver is not installed: run "make deps"');
  const service = new chrome.ServiceBuilder(driverPath);
  const options = new chrome.Options().debuggerAddress(address);
  const driver = await new Builder().forBrowser('chrome').setChromeOptions(options).setChromeService(service).build();
  return {
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
