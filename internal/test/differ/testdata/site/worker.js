self.onmessage = e => self.postMessage(e.data * 2); self.ready = true
