package slots

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold/internal/test/fakechrome"
)

func TestMain(m *testing.M) {
	fakechrome.Play()
	goleak.VerifyTestMain(m)
}
