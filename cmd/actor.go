package cmd

import (
	"fmt"
	"os/user"
)

// userName is who runs the command, where they don't say who they are.
func userName() (string, error) {
	who, err := user.Current()
	if err != nil {
		return "", &usageError{fmt.Errorf("who says so? Nothing tells the user's name (%w); say it with --actor", err)}
	}
	return who.Username, nil
}
