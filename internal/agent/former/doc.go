// Package former ends the pods that an agent has left in the container runtimes that it used before. Without that, a
// pod would run twice after a change of containerRuntimeEndpoint: in the runtime before and in the new one.
//
// It records the endpoints in the file runtimes.json of the root directory before the agent uses a runtime. An endpoint
// stays there until no pod of the root directory is left in its runtime.
package former
