// Package activities talks to the world for the workflows: one struct per outside
// system, whose methods are the activities and whose fields are their clients.
//
// An activity may run twice, and an attempt that timed out may still be running
// when the next one starts. So every write carries a precondition and is a no-op
// when repeated, and what will be refused again is an answer, not an error.
package activities
