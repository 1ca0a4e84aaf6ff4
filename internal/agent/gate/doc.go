// Package gate stands between the fleet and admission: it asks the rules about
// pods and acts on what they answer. It owns the admissions under way, their
// place in the pods' timelines, their events and metrics, and has pods end that
// are preempted. What the node can give comes in with Options.Input.
//
// Explainer asks the same about manifests and does nothing.
package gate
