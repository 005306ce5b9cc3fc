// Sends what the page hands over, whenever it can.
addEventListener('install', () => skipWaiting());
addEventListener('activate', (e) => e.waitUntil(clients.claim()));
addEventListener('message', (e) => e.waitUntil(fetch('/api/outbox', { method: 'POST', body: JSON.stringify(e.data) })));
