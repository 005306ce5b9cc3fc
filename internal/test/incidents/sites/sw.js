// The usual cache of a shop that works offline.
addEventListener('install', (e) => e.waitUntil(caches.open('v1').then((c) => c.addAll(['/products/7', '/site.js'])).then(() => skipWaiting())));
addEventListener('activate', (e) => e.waitUntil(clients.claim()));
addEventListener('fetch', (e) => { if (e.request.method === 'GET') e.respondWith(caches.match(e.request).then((hit) => hit ?? fetch(e.request))); });
