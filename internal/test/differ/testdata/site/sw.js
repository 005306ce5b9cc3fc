self.addEventListener("fetch", e => { if (e.request.url.endsWith("/from-sw")) e.respondWith(new Response("sw")) }); self.addEventListener("activate", e => e.waitUntil(clients.claim()))
