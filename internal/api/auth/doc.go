// Package auth authenticates and authorizes the requests to the node's HTTPS server.
//
// A client proves its identity in one of two ways: with a certificate that an authority of the client CA file signed,
// or with a bearer token that the API server accepts (TokenReview). The API server decides what the client may do
// (SubjectAccessReview), unless the mode AlwaysAllow permits everything. Answers to both kinds of review are cached for
// a while. Cached answers stay valid while the API server is unreachable.
//
// The package owns the two caches and the content of the client CA file, which it reads again when the file
// changes. It knows no paths: the server's route table says which rights a request needs.
package auth
