package cdpproxy

import (
	"strings"
	"testing"
)

func BenchmarkScan(b *testing.B) {
	for name, msg := range map[string]string{
		"small": `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"1+1","returnByValue":true},"sessionId":"0123456789ABCDEF0123456789ABCDEF"}`,
		"large": `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"'` + strings.Repeat("x", 4<<20) + `'.length"}}`,
		"text":  `{"id":1234,"method":"Runtime.evaluate","params":{"expression":"` + strings.Repeat(`let a = \"b\";\n`, 1<<14) + `"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			raw := []byte(msg)
			for b.Loop() {
				if _, err := scan(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnmask(b *testing.B) {
	payload := make([]byte, 1<<20)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		unmask(payload, [4]byte{1, 2, 3, 4})
	}
}
