package recovery_test

import (
	"testing"

	"leasehold/internal/test/leaks"
)

func TestMain(m *testing.M) {
	leaks.Main(m)
}
