// Puppeteer over WebDriver BiDi, as a package of puppeteer.mjs. Chrome speaks CDP: the mapper
// of chromium-bidi, which Puppeteer has in it, translates.
import puppeteer from 'puppeteer-core';

export default {
  connect: (options) => puppeteer.connect({ ...options, protocol: 'webDriverBiDi' }),
};
