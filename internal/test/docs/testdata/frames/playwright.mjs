// A snippet that connects with Playwright, and has its browser in "browser".
import { chromium } from 'playwright-core';
// the snippet
console.log('1 + 1 =', await browser.contexts()[0].pages()[0].evaluate('1 + 1'));
await browser.close();
