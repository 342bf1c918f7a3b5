git add -A; HOME=/root git -c user.name=x -c user.email=x@x commit -qF - ; git log --oneline | head -1
