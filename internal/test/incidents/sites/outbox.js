// Sends what the page passes to it, also after the page is closed.
addEventListener('install', () => skipWaiting());
addEventListener('activate', (e) => e.waitUntil(clients.claim()));
addEventListener('message', (e) => e.waitUntil(fetch('/api/outbox', { method: 'POST', body: JSON.stringify(e.data) })));
