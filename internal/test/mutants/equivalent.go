package main

// equivalent are the mutants that no test can notice, by name, with the reason why the code
// does the same.
var equivalent = map[string]string{}
