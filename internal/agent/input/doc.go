// Package input collects what the rules of admission depend on: the machine, the runtime, the Node object, and the
// resources that pods hold. It owns nothing and decides nothing. The gate and the explainer add the other pods.
package input
