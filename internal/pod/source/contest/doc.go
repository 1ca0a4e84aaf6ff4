// Package contest decides who gets a name that several origins want. It owns the claims of all origins and their order.
// It does not know what is claimed.
//
// A claim is for several keys at once, as a pod needs its name and its UID. It wins if it gets all of them. The first
// claim of a key has it, until its origin wants it no more. A claim that lost holds nothing, so it refuses nobody.
//
// A change costs as much as the claims that share keys with what has changed, directly or through other claims. The
// other claims cost nothing, however many they are.
package contest
