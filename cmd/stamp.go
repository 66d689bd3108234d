package cmd

// What the linker writes in where the build doesn't see the repository, as in an
// image: -X github.com/sickbay-dev/sickbay/cmd.stampedCommit=… and so on. The Dockerfile
// does. They go before what the Go toolchain found out by itself.
var (
	stampedVersion string
	stampedCommit  string
	// stampedTime is the commit's, as RFC 3339.
	stampedTime string
	// stampedModified is "true" if the tree had changes beside the commit.
	stampedModified string
)

// stamp puts in what the linker wrote.
func (b *build) stamp() {
	if stampedVersion != "" {
		b.Version = stampedVersion
	}
	if stampedCommit != "" {
		b.Commit, b.Time, b.Modified = stampedCommit, stampedTime, stampedModified == "true"
	}
}
