// Serves Chrome DevTools' own frontend as its npm package has it: TypeScript and CSS, which
// are translated one file at a time when the browser asks for them, as a build would. What
// is below /s/ goes to the sidecar, websockets too, so that frontend and sidecar have one
// origin: the sidecar refuses pages of others.
import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { extname } from 'node:path';
import { transform } from 'esbuild';

const root = new URL('node_modules/chrome-devtools-frontend/front_end/', import.meta.url);
const types = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.html': 'text/html', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png', '.avif': 'image/avif', '.ico': 'image/x-icon' };
const compilerOptions = { experimentalDecorators: true, useDefineForClassFields: false, target: 'esnext' };

// generated are the files that the frontend's build makes.
const generated = {
  'inspector.html': async () => (await readFile(new URL('entrypoint_template.html', root), 'utf8')).replaceAll('%ENTRYPOINT_NAME%', 'inspector'),
  'core/i18n/locales.js': async () => `export const LOCALES = ['en-US']; export const BUNDLED_LOCALES = LOCALES; export const DEFAULT_LOCALE = 'en-US';
    export const REMOTE_FETCH_PATTERN = ''; export const LOCAL_FETCH_PATTERN = './locales/@LOCALE@.json';`,
  'core/i18n/locales/en-US.json': async () => '{}',
  'Images/Images.js': async () => '',
  'favicon.ico': async () => '',
};

async function file(path) {
  if (generated[path]) return generated[path]();
  const read = (name) => readFile(new URL(name, root));
  const stem = path.slice(0, -3);
  if (path.endsWith('.css.js')) return `export default ${JSON.stringify(await readFile(new URL(stem, root), 'utf8'))};`;
  // Prompts of the assistant, which nobody here asks.
  if (path.endsWith('.skill.js')) return 'export const skill = {};';
  if (path.startsWith('Images/') && path.endsWith('.svg')) return read(path.replace('Images/', 'Images/src/'));
  try {
    return await read(path);
  } catch (error) {
    if (!path.endsWith('.js')) throw error;
    return (await transform(await readFile(new URL(`${stem}.ts`, root), 'utf8'), { loader: 'ts', tsconfigRaw: { compilerOptions } })).code;
  }
}

// serve returns the server's address, HOST:PORT.
export async function serve(sidecar) {
  const { hostname, port } = new URL(sidecar);
  const onward = ({ method, url, headers }) => request({ hostname, port, method, path: url, headers });
  const server = createServer(async (asked, answer) => {
    const { pathname } = new URL(asked.url, 'http://frontend');
    if (pathname.startsWith('/s/')) {
      const there = onward(asked);
      there.on('response', (response) => { answer.writeHead(response.statusCode, response.headers); response.pipe(answer); });
      there.on('error', () => answer.destroy());
      asked.pipe(there);
      return;
    }
    try {
      const path = decodeURIComponent(pathname.slice(1));
      if (!types[extname(path)]) throw new Error('no type is known for it');
      const content = await file(path);
      answer.writeHead(200, { 'content-type': types[extname(path)] }).end(content);
    } catch (error) {
      process.stderr.write(`${pathname}: ${error.message}\n`);
      answer.writeHead(404).end(String(error.message));
    }
  });
  server.on('upgrade', (asked, socket) => {
    const there = onward(asked);
    socket.on('error', () => there.destroy());
    const head = ({ statusCode, statusMessage, rawHeaders }) => {
      const lines = rawHeaders.map((text, i) => (i % 2 ? `: ${text}\r\n` : text)).join('');
      socket.write(`HTTP/1.1 ${statusCode} ${statusMessage}\r\n${lines}\r\n`);
    };
    there.on('upgrade', (response, other, first) => {
      head(response);
      socket.write(first);
      other.on('error', () => socket.destroy()).pipe(socket).pipe(other);
    });
    there.on('response', (response) => { head(response); response.pipe(socket); });
    there.on('error', () => socket.destroy());
    there.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${server.address().port}`;
}
