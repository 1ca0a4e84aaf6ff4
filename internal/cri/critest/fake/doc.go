// Package fake is an in-memory CRI runtime for unit tests of decisions (Runtime).
//
// Tests reach it through the same client as a real runtime. It has no processes. It only produces the output, files and
// exit codes of the test workload's commands. Tests can end its containers, make its calls fail, and stop it. It passes
// the suite of package critest.
package fake
