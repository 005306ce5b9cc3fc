// Command gateway is the S3 server of the tests: versitygw's own, over a directory, without
// what its command has for other stores and for load tests. That makes it a third faster to
// build.
//
//	gateway ADDRESS DIRECTORY ACCESS SECRET REGION
//
// Each folder of the directory is a bucket.
package main

import (
	"context"
	"log"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 6 {
		log.Fatal("want gateway ADDRESS DIRECTORY ACCESS SECRET REGION")
	}
	store, err := posix.New(os.Args[2], meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(embedgw.RunVersityGW(context.Background(), store, &embedgw.Config{
		Ports: []string{os.Args[1]}, RootUserAccess: os.Args[3], RootUserSecret: os.Args[4], Region: os.Args[5],
		HealthPath: "/health", Quiet: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	}))
}
