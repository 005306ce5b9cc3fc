// A snippet that connects with Puppeteer, and has its browser in "browser".
import puppeteer from 'puppeteer-core';
// the snippet
console.log('1 + 1 =', await (await browser.pages())[0].evaluate('1 + 1'));
await browser.close();
