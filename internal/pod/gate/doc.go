// Package gate takes a pod through admission: an ordered list of stages (stages.go) from the first look to the report
// of the answer. The rules themselves are package admission's, and pure.
//
// It owns the admissions under way, their spans in the pods' timelines, and the metrics of rejections and preemptions.
// It writes the ledger of what pods hold for themselves (package allocation) and the allocated resources of pods
// (package resize) through their own methods. The fleet calls it, from one goroutine.
package gate
