// Selenium as the worker of an incident, by chromedriver's debuggerAddress:
// node selenium.mjs HOST:PORT - (see common.mjs). It has no browser contexts.
import { existsSync } from 'node:fs';
import { Builder, By, Key, until as condition } from 'selenium-webdriver';
import chrome from 'selenium-webdriver/chrome.js';
import { run, usage } from '../actions.mjs';
import { shows, soon, until } from './common.mjs';

const [address, actions] = usage('selenium.mjs', 'HOST:PORT ACTIONS', 2);
const patience = 50000;
const keys = { Enter: Key.ENTER, Tab: Key.TAB, Escape: Key.ESCAPE };

await run(async () => {
  // The path is given so that Selenium does not download a driver.
  const driverPath = process.env.PATH.split(':').map((dir) => `${dir}/chromedriver`).find(existsSync);
  if (!driverPath) throw new Error('chromedriver is not installed: run "make deps"');
  const service = new chrome.ServiceBuilder(driverPath);
  const options = new chrome.Options().debuggerAddress(address);
  options.setAlertBehavior('ignore'); // a dialog stays open
  const driver = await new Builder().forBrowser('chrome').setChromeOptions(options).setChromeService(service).build();
  const find = (selector) => driver.wait(condition.elementLocated(By.css(selector)), patience);
  const alert = (text) => until(`the dialog ${text}`, async () => {
    const open = await driver.switchTo().alert();
    return (await open.getText()).includes(text) && open;
  });
  return {
    goto: async ({ url }) => driver.get(url),
    open: async ({ url }) => soon(driver.get(url), 300),
    // chromedriver waits for what a click loads, as long as that takes.
    click: async ({ selector }) => soon((await find(selector)).click()),
    aside: async ({ selector }) => driver.actions().keyDown(Key.CONTROL).click(await find(selector)).keyUp(Key.CONTROL).perform(),
    fill: async ({ selector, text }) => (await find(selector)).sendKeys(text),
    type: async ({ text }) => driver.actions().sendKeys(text).perform(),
    press: async ({ text }) => soon(driver.actions().sendKeys(keys[text] ?? text).perform()),
    attach: async ({ selector, path }) => (await find(selector)).sendKeys(path),
    run: async ({ expression }) => soon(driver.executeScript(`void (${expression})`)),
    scroll: async ({ text }) => until(text, async () => {
      await driver.executeScript('scrollBy(0, 900)');
      return driver.executeScript(`return ${shows(text)}`);
    }).then(() => {}),
    see: async ({ text }) => { await until(text, () => driver.executeScript(`return ${shows(text)}`)); },
    dialog: async ({ text }) => { await alert(text); },
    accept: async ({ text }) => (await alert(text)).accept(),
    switch: async ({ url }) => {
      await until(`a tab at ${url}`, async () => {
        for (const handle of await driver.getAllWindowHandles()) {
          await driver.switchTo().window(handle);
          if ((await driver.getCurrentUrl()) === url) return true;
        }
        return false;
      });
    },
    close: async ({ url }) => {
      const old = await driver.getWindowHandle();
      await driver.switchTo().newWindow('tab');
      await driver.get(url);
      const current = await driver.getWindowHandle();
      await driver.switchTo().window(old);
      await driver.close();
      await driver.switchTo().window(current);
    },
    cdp: async ({ method, params = {} }) => driver.sendAndGetDevToolsCommand(method, params),
  };
}, actions);
