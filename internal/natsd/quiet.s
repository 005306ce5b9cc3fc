// This file lets quiet.go declare a function without a body.
