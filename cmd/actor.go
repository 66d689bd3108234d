package cmd

import (
	"context"
	"fmt"
	"os/user"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/config"
)

// whoLimit bounds the question who the kubeconfig's user is.
const whoLimit = 5 * time.Second

// userName is who runs the command, where they don't say who they are.
func userName() (string, error) {
	who, err := user.Current()
	if err != nil {
		return "", &usageError{fmt.Errorf("who says so? Nothing tells the user's name (%w); say it with --actor", err)}
	}
	return who.Username, nil
}

// actorOf is the kubeconfig's user, as the cluster calls it (`kubectl auth whoami`), and
// the user's name on this machine where the cluster doesn't say.
func actorOf(ctx context.Context, streams Streams, set config.Kubernetes) (string, error) {
	known, err := kubernetesUser(ctx, set)
	if err == nil {
		return known, nil
	}
	name, failed := userName()
	if failed != nil {
		return "", failed
	}
	note(streams, []string{fmt.Sprintf("it is said as %s, the user's name on this machine, because the cluster doesn't tell who you are: %v", name, err)})
	return name, nil
}

func kubernetesUser(ctx context.Context, set config.Kubernetes) (string, error) {
	to, err := connectKubernetes(set, "sickbay-whoami", nil)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, whoLimit)
	defer cancel()
	review, err := to.typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the cluster who the kubeconfig's user is: %w", err)
	}
	if review.Status.UserInfo.Username == "" {
		return "", fmt.Errorf("the cluster names no user")
	}
	return review.Status.UserInfo.Username, nil
}
