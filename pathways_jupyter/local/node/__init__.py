"""The machine under the nodes: a kubelet that runs pods as processes, with their images, network and volumes."""
