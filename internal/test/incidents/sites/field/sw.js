// Keeps the manual for places without a network.
addEventListener('install', (e) => e.waitUntil(caches.open('manual').then((c) => c.addAll(['/manual/1', '/manual/2'])).then(() => skipWaiting())));
addEventListener('activate', (e) => e.waitUntil(clients.claim()));
addEventListener('fetch', (e) => { if (e.request.method === 'GET') e.respondWith(caches.match(e.request).then((hit) => hit ?? fetch(e.request))); });
