// Package auth decides who may ask the node's HTTPS server for what.
//
// Who asks is told by a client certificate that an authority of the client CA
// file signed, or by a bearer token that the API server vouches for
// (TokenReview). What they may is told by the API server (SubjectAccessReview),
// or is everything (AlwaysAllow). Both kinds of answers are kept for a while;
// while the API server is away those that are kept still count.
//
// It owns the two caches and the client CA file's content, which is read again
// when the file changes. It knows no paths: what a request needs is told by the
// server's table of routes.
package auth
