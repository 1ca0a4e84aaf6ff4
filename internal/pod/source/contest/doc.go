// Package contest decides who gets a name that several origins want. It owns the claims of all origins and their order.
// It does not know what is claimed.
//
// A claim is for several keys at once, as a pod needs its name and its UID. It wins if it gets all of them. The first
// claim of a key has the key until its origin no longer wants it. A claim that has lost has no key, so no other claim
// loses to it.
//
// A change costs as much as the claims that share keys with what has changed, directly or through other claims. The
// other claims cost nothing, however many they are.
package contest
