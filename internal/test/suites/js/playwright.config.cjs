// Playwright's own tests, of the library and of pages, with browsers that are connected to
// over CDP: launch() asks the stand-in for a browser, as a client would start Chrome, and
// connects to its address. Only the tests whose names stand in the file SUITES_TESTS run.
const fs = require('node:fs');
const path = require('node:path');
const {spawn} = require('node:child_process');

const source = process.env.SUITES_ROOT;
const tests = path.join(source, 'tests');
const {chromium} = require(require.resolve('playwright-core', {paths: [source]}));

process.env.PWTEST_UNDER_TEST = '1';

// start starts the stand-in and returns it with the address that it prints.
function start(args) {
  const child = spawn(process.env.SUITES_STANDIN, ['--remote-debugging-port=0', ...args], {stdio: ['ignore', 'ignore', 'pipe']});
  process.once('exit', () => child.kill('SIGKILL'));
  return new Promise((resolve, reject) => {
    let said = '';
    child.stderr.on('data', data => {
      said += data;
      const address = /DevTools listening on (ws:\S+)/.exec(said);
      if (address)
        resolve({child, address: address[1]});
    });
    child.once('exit', () => reject(new Error(`no browser: ${said}`)));
    child.once('error', reject);
  });
}

chromium.launch = async (options = {}) => {
  const {child, address} = await start(options.args ?? []);
  const browser = await chromium.connectOverCDP(address, {slowMo: options.slowMo, logger: options.logger});
  browser.once('disconnected', () => child.kill());
  return browser;
};

const escape = text => text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&');

// A title that grep looks at is made of nothing for the root, the project, the file and the
// titles, with spaces between them.
function chosen() {
  if (!process.env.SUITES_TESTS)
    return undefined;
  const names = JSON.parse(fs.readFileSync(process.env.SUITES_TESTS, 'utf8'));
  return new RegExp(`^ *chromium (?:(?:tests\\/)?(?:page|library)\\/)?(?:${names.map(name => escape(name.split(' › ').join(' ').replace(/^tests\/(page|library)\//, ''))).join('|')})(?: @.*)?$`);
}

const use = {mode: 'default', browserName: 'chromium', headless: true};
const project = folder => ({
  name: 'chromium',
  testDir: path.join(tests, folder),
  testIgnore: [/firefox/, /webkit/],
  snapshotPathTemplate: '{testDir}/{testFileDir}/{testFileName}-snapshots/{arg}-chromium{ext}',
  use,
  metadata: {platform: process.platform, headless: 'headless', browserName: 'chromium', mode: 'default', video: false, trace: false},
});

module.exports = {
  testDir: tests,
  outputDir: process.env.SUITES_OUTPUT,
  expect: {timeout: 20000},
  timeout: 60000,
  workers: 2,
  fullyParallel: true,
  retries: 0,
  grep: chosen(),
  reporter: [[path.join(__dirname, 'playwright-reporter.cjs')]],
  projects: [project(process.env.SUITES_FOLDER)],
};
