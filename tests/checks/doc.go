// Package checks holds the repository to what it says of itself: the table of
// requirements to the tests and breaks that exist, that of reported cases to the
// tests that tell of them, the tests to their doc comments, the code to its words.
//
// It owns reading docs/requirements.md, the test functions of every module and
// the patches of tests/breaks. It must never need a stack, a network or anything
// but the clone that it is in, because CI runs it first.
package checks
